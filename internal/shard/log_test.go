package shard

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"multiedge/internal/engine"
)

// What paths go through on a busy host is logged for who looks for it, at debug; what an operator must see, at info.
func TestLevelsOfPaths(t *testing.T) {
	var log bytes.Buffer
	s := &Shard{
		log:  slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		tell: func(Notice) {},
	}
	for level, minor := range map[string]bool{"DEBUG": true, "INFO": false} {
		log.Reset()
		s.handleEvent(0, &engine.Event{Kind: engine.EvPath, PeerName: "b", Text: "changed", Minor: minor})
		if out := log.String(); !strings.Contains(out, "level="+level+` msg="path changed" peer=b`) {
			t.Errorf("minor %v: %s", minor, out)
		}
	}
}
