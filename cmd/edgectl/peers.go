package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"multiedge/internal/config"
	"multiedge/internal/daemon"
	"multiedge/internal/identity"
	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
	"multiedge/internal/secure"
)

type peersCmd struct {
	List   peersListCmd   `cmd:"" help:"Show the authorised peers: the running daemon's, or else the file's."`
	Add    peersAddCmd    `cmd:"" help:"Authorise a peer."`
	Remove peersRemoveCmd `cmd:"" help:"Revoke a peer's authorisation; its connections end."`
}

// peersFile chooses the file to work on.
type peersFile struct {
	File string `short:"f" placeholder:"FILE" predictor:"file" help:"Authorised-peers file (default: the running daemon's, else /etc/edged/peers or beside the user's key)."`
}

// find returns the file, and whether a daemon runs that reads it.
func (c *peersFile) find(g *globals) (file string, running bool, err error) {
	st, err := g.status()
	switch {
	case err != nil && !errors.Is(err, errNoDaemon):
		return "", false, err
	case err != nil && c.File != "":
		return c.File, false, nil
	case err != nil:
		if file = identity.PeersPath(identity.KeyPath()); file == "" {
			return "", false, errors.New("there is no home directory to look for the peers in: name the file by --file")
		}
		return file, false, nil
	case c.File != "":
		return c.File, sameFile(st.PeersFile, c.File), nil
	case st.Security != config.Encrypted:
		return "", false,
			errors.New("the daemon runs in plaintext and authorises nobody; take security = \"plaintext\" out of its " +
				"configuration, or name a file by --file")
	case st.PeersFile == "":
		return "", false, errors.New("the daemon reads no peers file; name a file by --file")
	}
	if err := g.mayName(st.PeersFile); err != nil {
		return "", false, err
	}
	return st.PeersFile, true, nil
}

// mayName refuses to edit the file that a socket names unless that is the one that we would take anyway, or the socket
// is root's or our own: another user could make root write wherever he likes.
func (g *globals) mayName(file string) error {
	if sameFile(file, identity.PeersPath(identity.KeyPath())) {
		return nil
	}
	uid, err := g.servedBy()
	if err != nil {
		return err
	}
	if uid == 0 || int(uid) == os.Geteuid() {
		return nil
	}
	return fmt.Errorf("the socket %s is user %d's, who names the file %s: if that is the right one, give it by --file",
		g.Socket, uid, file)
}

// sameFile reports whether two paths lead to one file, which need not be there yet.
func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	if errX == nil && errY == nil {
		return os.SameFile(x, y)
	}
	b, err := filepath.Abs(b)
	return err == nil && filepath.Clean(a) == b
}

type peersListCmd struct{ peersFile }

func (c *peersListCmd) Run(g *globals) error {
	file, running, err := c.find(g)
	if err != nil {
		return err
	}
	if running && c.File == "" {
		list, done, err := fetch[[]inspect.AuthorisedStatus](g, ipc.Message{Kind: ipc.KindStatus, What: "authorised"})
		if err != nil || done {
			return err
		}
		return printPeers(g, list)
	}
	peers, err := identity.ListPeers(file)
	if err != nil {
		return err
	}
	list := []inspect.AuthorisedStatus{}
	for _, p := range peers {
		list = append(list, inspect.AuthorisedStatus{Name: p.Name, Key: p.Key.String(), Node: fmt.Sprintf("%x",
			p.Key.Node()), Source: file, Endpoints: p.Endpoints, Allow: p.Allow})
	}
	if g.JSON {
		return printJSON(g, list)
	}
	return printPeers(g, list)
}

func printPeers(g *globals, list []inspect.AuthorisedStatus) error {
	var rows [][]any
	for _, p := range list {
		rows = append(rows, []any{p.Name, p.Key, p.Node, p.State, p.Source, p.Endpoints, p.Allow, p.Reason})
	}
	return table(g.out, "PEER KEY NODE STATE FROM ENDPOINTS ALLOW REASON", rows)
}

// peersReport is what peers add and remove print with -j.
type peersReport struct {
	Schema int    `json:"schema"`
	File   string `json:"peers_file"`
	Name   string `json:"name"`
	Key    string `json:"key"`
	// where it is reached over IP, as given, joined by commas
	Endpoints string `json:"endpoints,omitempty"`
	// where it may be, as given, joined by commas
	Allow   string `json:"allow,omitempty"`
	Changed bool   `json:"changed"`  // the file
	Reload  string `json:"reload"`   // "done", "no-daemon", or why the daemon goes on with what it had
	InForce int    `json:"in_force"` // peers the daemon authorises now; 0 unless reload is done
	Own     bool   `json:"own"`      // the key is that of the running daemon itself
}

type peersAddCmd struct {
	Key      string   `arg:"" help:"The peer's public key, as edgectl key show prints it there."`
	Name     string   `arg:"" help:"Name by which programs here dial the peer."`
	Endpoint []string `placeholder:"HOST:PORT" help:"Where the peer is reached over IP; may be repeated. Replaces those it had."`
	Allow    []string `placeholder:"NETWORK" help:"Network in which its IP addresses must be, such as 10.0.0.0/8; may be repeated. Replaces those it had."`
	peersFile
}

func (c *peersAddCmd) Run(g *globals) error {
	key, err := secure.ParsePublicKey(c.Key)
	if err != nil {
		if _, swapped := secure.ParsePublicKey(c.Name); swapped == nil {
			return fmt.Errorf("the key comes first: edgectl peers add %s %s", c.Name, c.Key)
		}
		return err
	}
	if slices.Contains(c.Allow, "") {
		return errors.New("--allow names no network; leave it out, and the peer may be anywhere")
	}
	file, running, err := c.find(g)
	if err != nil {
		return err
	}
	changed, err := identity.AddPeer(file, secure.Peer{Name: c.Name, Key: key,
		Endpoints: strings.Join(c.Endpoint, ","), Allow: strings.Join(c.Allow, ",")})
	if err != nil {
		return editError(err)
	}
	st, err := g.status()
	own := err == nil && st.PublicKey == key.String()
	return g.applied("authorised", peersReport{Schema: inspect.StatusSchema, File: file, Name: c.Name, Key: c.Key,
		Endpoints: strings.Join(c.Endpoint, ","), Allow: strings.Join(c.Allow, ","),
		Changed: changed, Own: own}, running)
}

type peersRemoveCmd struct {
	Name string `arg:"" predictor:"authorised" help:"Name or public key of the peer."`
	peersFile
}

func (c *peersRemoveCmd) Run(g *globals) error {
	file, running, err := c.find(g)
	if err != nil {
		return err
	}
	p, err := identity.RemovePeer(file, c.Name)
	if err != nil {
		return editError(err)
	}
	return g.applied("authorised no more", peersReport{Schema: inspect.StatusSchema, File: file, Name: p.Name,
		Key: p.Key.String(), Changed: true}, running)
}

func editError(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; run this as root, or as the owner of the file", err)
	}
	return err
}

// applied has the daemon read the file again and says what came of it. It fails if the daemon refuses: what was changed
// is not in force then.
func (g *globals) applied(what string, r peersReport, running bool) error {
	var err error
	r.Reload = "no-daemon"
	if running {
		var now daemon.ReloadReport
		now, err = get[daemon.ReloadReport](g, ipc.Message{Kind: ipc.KindReload})
		r.Reload, r.InForce = "done", now.Authorised
		if err != nil {
			r.Reload = err.Error()
			err = fmt.Errorf("%s was written, and the daemon goes on with what it had: %w", r.File, err)
		}
	}
	if g.JSON {
		return errors.Join(printJSON(g, r), err)
	}
	note := ""
	if r.Own {
		what = "written, and authorises nobody"
	}
	if !running {
		note = "; no running daemon reads that file, the next one started with it will"
	}
	if r.Own { // no error: one file may be shared by all nodes
		note += "; that is this node's own key: add the other host's, as edgectl key show prints it there"
	}
	_, werr := fmt.Fprintf(g.out, "%s: %s (%s)%s\n", r.Name, what, r.File, note)
	return cmp.Or(err, werr)
}
