package secure

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// ErrStranger means that the peer proved who it is, and is not authorised here.
var ErrStranger = errors.New("peer is not authorised here")

// Level says what protects a piece of the handshake (RFC 9001 §2.1).
type Level uint8

const (
	Initial   Level = iota // nothing: it is only checked in hindsight
	Protected              // the handshake's own keys
	Levels
)

// Node is an identity with the peers it talks to. Not safe for concurrent use.
type Node struct {
	Public PublicKey
	Peers  *Peers // replaced on reload
	cert   tls.Certificate
}

// NewNode prepares an identity for handshakes.
func NewNode(key PrivateKey, peers *Peers) *Node {
	signer := key.signer()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33,
		0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, signer.Public(), signer)
	if err != nil {
		panic("BUG: secure: " + err.Error())
	}
	return &Node{Public: key.Public(), Peers: peers, cert: tls.Certificate{Certificate: [][]byte{der},
		PrivateKey: signer}}
}

// Handshake is one run of TLS 1.3 between two nodes, both with certificates, carried by somebody else: what Receive is
// given the other end's Out had.
type Handshake struct {
	q      *tls.QUICConn
	out    [Levels][]byte
	peer   Peer
	params []byte
	done   bool
	err    error

	handshake, data secrets
}

// secrets of one level.
type secrets struct{ read, write []byte }

// Dial starts a handshake with the node that holds peer.Key. params are ours for the other end to see, authenticated.
func (n *Node) Dial(peer Peer, params []byte) *Handshake {
	h := &Handshake{}
	cfg := n.config(h)
	cfg.InsecureSkipVerify = true // no names and no authorities: VerifyConnection compares the key itself
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		key, err := keyOf(&cs)
		if err == nil && key != peer.Key {
			err = ErrStranger
		}
		h.peer = peer
		return err
	}
	h.q = tls.QUICClient(&tls.QUICConfig{TLSConfig: cfg})
	h.start(params)
	return h
}

// Answer prepares to answer a handshake.
func (n *Node) Answer(params []byte) *Handshake {
	h := &Handshake{}
	cfg := n.config(h)
	cfg.ClientAuth = tls.RequireAnyClientCert
	peers := n.Peers
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		key, err := keyOf(&cs)
		if err != nil {
			return err
		}
		peer, ok := peers.ByNode(key.Node())
		if !ok || peer.Key != key {
			return ErrStranger
		}
		h.peer = peer
		return nil
	}
	h.q = tls.QUICServer(&tls.QUICConfig{TLSConfig: cfg})
	h.start(params)
	return h
}

func (n *Node) config(h *Handshake) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"multiedge/1"}, Certificates: []tls.Certificate{n.cert},
		SessionTicketsDisabled: true,
		ServerName:             "multiedge",
	}
}

func keyOf(cs *tls.ConnectionState) (k PublicKey, err error) {
	if len(cs.PeerCertificates) != 1 {
		return k, fmt.Errorf("%d certificates, want one", len(cs.PeerCertificates))
	}
	key, ok := cs.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok {
		return k, errors.New("not an Ed25519 key")
	}
	return PublicKey(key), nil
}

func (h *Handshake) start(params []byte) {
	h.q.SetTransportParameters(params)
	if err := h.q.Start(context.Background()); err != nil {
		h.err = err
		return
	}
	h.drain()
}

// Receive takes the next bytes of the peer's stream at a level, in order. An error ends the handshake.
func (h *Handshake) Receive(l Level, p []byte) error {
	if h.err != nil {
		return h.err
	}
	level := tls.QUICEncryptionLevelInitial
	if l == Protected {
		level = tls.QUICEncryptionLevelHandshake
	}
	if err := h.q.HandleData(level, p); err != nil {
		h.err = err
		return err
	}
	h.drain()
	return h.err
}

// drain takes what the handshake has to say.
func (h *Handshake) drain() {
	for {
		ev := h.q.NextEvent()
		switch ev.Kind {
		case tls.QUICNoEvent:
			return
		case tls.QUICWriteData:
			switch ev.Level {
			case tls.QUICEncryptionLevelInitial:
				h.out[Initial] = append(h.out[Initial], ev.Data...)
			case tls.QUICEncryptionLevelHandshake:
				h.out[Protected] = append(h.out[Protected], ev.Data...)
			}
		case tls.QUICSetReadSecret:
			h.secrets(ev.Level).read = append([]byte(nil), ev.Data...)
		case tls.QUICSetWriteSecret:
			h.secrets(ev.Level).write = append([]byte(nil), ev.Data...)
		case tls.QUICTransportParameters:
			h.params = append([]byte(nil), ev.Data...)
		case tls.QUICHandshakeDone:
			h.done = true
		}
	}
}

func (h *Handshake) secrets(l tls.QUICEncryptionLevel) *secrets {
	if l == tls.QUICEncryptionLevelApplication {
		return &h.data
	}
	return &h.handshake
}

// Out returns everything there is to send at a level so far. It grows only; the caller must not change it.
func (h *Handshake) Out(l Level) []byte { return h.out[l] }

// Done reports whether the peer has proved who it is and everything of ours has been said.
func (h *Handshake) Done() bool { return h.done && h.err == nil }

// Peer returns who the peer is, once Done.
func (h *Handshake) Peer() Peer { return h.peer }

// Params returns what the peer said of itself. It is authentic once Done.
func (h *Handshake) Params() []byte { return h.params }

// ProtectedKeys returns what seals and opens handshake frames of level Protected; nil before there is any.
func (h *Handshake) ProtectedKeys() (*Sealer, *Opener) { return h.handshake.keys() }

// DataKeys returns what seals and opens data frames. The caller takes them once, when Done.
func (h *Handshake) DataKeys() (*Sealer, *Opener) {
	defer h.data.erase()
	return h.data.keys()
}

func (s *secrets) keys() (w *Sealer, r *Opener) {
	if s.write != nil {
		w = NewSealer((*Secret)(s.write))
	}
	if s.read != nil {
		r = NewOpener((*Secret)(s.read))
	}
	return w, r
}

func (s *secrets) erase() {
	clear(s.read)
	clear(s.write)
	*s = secrets{}
}

// Close ends a handshake that is not needed any more.
func (h *Handshake) Close() {
	h.q.Close()
	h.handshake.erase()
	h.data.erase()
}
