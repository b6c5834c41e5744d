package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"multiedge/internal/config"
	"multiedge/internal/identity"
	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
	"multiedge/internal/secure"
)

type keyCmd struct {
	Show   keyShowCmd   `cmd:"" help:"Print this node's public key, which peers authorise: the running daemon's, or else the key file's."`
	New    keyNewCmd    `cmd:"" help:"Make a private key: into FILE, printing the public key, or without FILE to standard output."`
	Public keyPublicCmd `cmd:"" help:"Read a private key from standard input and print its public key."`
}

// keyReport is what the key commands print with -j.
type keyReport struct {
	Schema     int    `json:"schema"`
	PublicKey  string `json:"public_key"`
	PrivateKey string `json:"private_key,omitempty"` // key new without FILE
	Node       string `json:"node"`
	File       string `json:"key_file,omitempty"`
}

func newKeyReport(k secure.PublicKey, file string) keyReport {
	return keyReport{Schema: inspect.StatusSchema, PublicKey: k.String(), Node: fmt.Sprintf("%x", k.Node()), File: file}
}

func (g *globals) printKey(r keyReport) error {
	if g.JSON {
		return printJSON(g, r)
	}
	_, err := fmt.Fprintln(g.out, r.PublicKey)
	return err
}

type keyShowCmd struct {
	File string `short:"f" placeholder:"FILE" predictor:"file" help:"Key file to read, instead of asking the daemon."`
}

// Run asks the daemon, which may read its key where we may not.
func (c *keyShowCmd) Run(g *globals) error {
	file, where := c.File, ""
	if file == "" {
		st, err := g.status()
		switch {
		case err == nil && st.PublicKey != "":
			return g.printKey(keyReport{Schema: inspect.StatusSchema, PublicKey: st.PublicKey, Node: st.Node,
				File: st.KeyFile})
		case err != nil && !errors.Is(err, errNoDaemon):
			return err
		case err == nil:
			return errors.New("the daemon runs in plaintext and has no key; name the key file by -f to see the key " +
				"it would have")
		}
		file, where = identity.KeyPath(), fmt.Sprintf("no daemon runs at %s, and ", g.Socket)
	}
	k, err := identity.ReadKey(file)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s%w; edged makes a key when it first starts, edgectl key new %s makes one before", where,
			err, file)
	}
	if err != nil {
		return err
	}
	return g.printKey(newKeyReport(k.Public(), file))
}

type keyNewCmd struct {
	File string `arg:"" optional:"" predictor:"file" help:"File to make, readable only by its owner; an existing file is never overwritten."`
}

func (c *keyNewCmd) Run(g *globals) error {
	k := secure.NewPrivateKey()
	if c.File != "" {
		if err := identity.CreateKey(c.File, k); err != nil {
			return err
		}
		return g.printKey(newKeyReport(k.Public(), c.File))
	}
	if g.JSON {
		r := newKeyReport(k.Public(), "")
		r.PrivateKey = k.Text()
		return printJSON(g, r)
	}
	_, err := fmt.Fprintln(g.out, k.Text())
	return err
}

type keyPublicCmd struct{}

func (*keyPublicCmd) Run(g *globals) error {
	text, err := io.ReadAll(io.LimitReader(g.in, 4096))
	if err != nil {
		return err
	}
	k, err := secure.ParsePrivateKey(string(text))
	if err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	return g.printKey(newKeyReport(k.Public(), ""))
}

// status asks the daemon about itself.
func (g *globals) status() (inspect.Status, error) {
	return get[inspect.Status](g, ipc.Message{Kind: ipc.KindStatus})
}

// securityText says in a line what protects the frames.
func securityText(st *inspect.Status) string {
	if st.Security != config.Encrypted {
		return fmt.Sprintf("PLAINTEXT: frames are neither encrypted nor authenticated (checksum %s)", st.Checksum)
	}
	text := fmt.Sprintf("encrypted, key %s, authorised peers: %d", st.PublicKey, st.Authorised)
	if st.PeersFile != "" {
		text += " (" + st.PeersFile + ")"
	}
	return text
}

// keyText is a peer's key, or why there is none.
func keyText(p *inspect.PeerStatus) string {
	switch p.Security {
	case config.Plaintext:
		return "PLAINTEXT"
	case inspect.Stranger:
		return "(not authorised)"
	}
	return p.Key
}
