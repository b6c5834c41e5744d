// Package secure is who a node is and what protects its frames: key pairs and the peers they authorise, the TLS 1.3
// handshake that makes the keys of a session, and the AEAD that seals frames with them (docs/PROTOCOL.md clause 10). It
// touches neither files nor clocks.
package secure
