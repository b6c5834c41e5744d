package daemon

import (
	"encoding/json"
	"runtime"
	"strings"

	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
	"multiedge/internal/mono"
	"multiedge/internal/shard"
)

// VersionReport answers a version request.
type VersionReport struct {
	Schema    int    `json:"schema"`
	Version   string `json:"version"`
	Protocol  int    `json:"ipc_version"`
	GoVersion string `json:"go_version"`
	Node      string `json:"node"`
	Name      string `json:"name"`
}

// whats are the lists a status request can ask for.
var whats = []string{"status", "link", "peer", "conn", "region", "client", "authorised"}

// inform answers status, doctor and version requests. Lists are sent in pages: each is a JSON array, the client joins
// them.
func (ss *controlConn) inform(m *ipc.Message) (*ipc.Message, error) {
	var body any
	switch m.Kind {
	case ipc.KindVersion:
		body = VersionReport{
			Schema: inspect.StatusSchema, Version: ss.d.shown.inspector.Version(), Protocol: ipc.HighestVersion,
			GoVersion: runtime.Version(), Node: ss.d.node.String(), Name: ss.d.cfg.Name,
		}
	case ipc.KindDoctor:
		snap, err := ss.d.Snapshot()
		if err != nil {
			return nil, err
		}
		return page(m, ss.d.shown.inspector.Facts(snap), nil)
	default:
		ask := ss.d.Snapshot
		if m.Page > 0 {
			ask = ss.d.shown.inspector.Recent
		}
		snap, err := ask()
		if err != nil {
			return nil, err
		}
		starts := ss.d.shown.cuts.list(snap, m.What)
		switch m.What {
		case "", "status":
			body = snap.Status
		case "link":
			return page(m, snap.Links, starts)
		case "peer":
			return page(m, snap.Peers, starts)
		case "conn":
			return page(m, snap.Conns, starts)
		case "region":
			return page(m, snap.Regions, starts)
		case "client":
			return page(m, snap.Clients, starts)
		case "authorised":
			return page(m, snap.Authorised, starts)
		default:
			return nil, ipc.Errorf(ipc.CodeInvalid, "there is no status of %q; ask for one of %s", m.What,
				strings.Join(whats, ", "))
		}
	}
	reply := m.Reply()
	var err error
	reply.Body, err = json.Marshal(body)
	return reply, err
}

// DrainUndo is Message.What of a drain request that ends draining.
const DrainUndo = "undo"

// drain makes the daemon refuse new clients and connections, or take them again. Only administrators may do that.
func (ss *controlConn) drain(m *ipc.Message) (*ipc.Message, error) {
	if err := ss.mayAdminister("drain the daemon"); err != nil {
		return nil, err
	}
	if m.What != "" && m.What != DrainUndo {
		return nil, ipc.Errorf(ipc.CodeInvalid, "drain %q: this daemon knows %q", m.What, DrainUndo)
	}
	on, what, kind := true, "draining: nothing new is taken", EventDrain
	if m.What == DrainUndo {
		on, what, kind = false, "draining no more", EventUndrain
	}
	if err := ss.d.everyShard(func(s *shard.Shard, _ mono.Time) { s.SetDraining(on) }); err != nil {
		return nil, err
	}
	ss.d.draining.Store(on)
	ss.d.log.Info(what, "pid", ss.cred.PID)
	ss.d.tell(&Event{Kind: kind, PID: ss.cred.PID, UID: ss.cred.UID})
	return m.Reply(), nil
}
