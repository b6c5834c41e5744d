package edge

import (
	"context"
	"encoding/json"

	"multiedge/internal/ipc"
)

// status returns what the transport says of itself.
func (d *Device) status(ctx context.Context, what string) (json.RawMessage, error) {
	a, err := d.current(ctx)
	if err != nil {
		return nil, err
	}
	var pages []json.RawMessage
	for {
		m, err := a.call(ctx, &ipc.Message{Kind: ipc.KindStatus, What: what, Page: len(pages)}, &call{})
		if err != nil {
			return nil, err
		}
		pages = append(pages, m.Body)
		if m.More && len(pages) < 1<<16 {
			continue
		}
		if len(pages) == 1 {
			return pages[0], nil
		}
		return json.Marshal(pages)
	}
}
