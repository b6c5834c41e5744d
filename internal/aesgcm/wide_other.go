//go:build !amd64

package aesgcm

import "crypto/cipher"

// Wide reports whether this processor encrypts four blocks at once.
func Wide() bool { return false }

func newWide(key []byte) cipher.AEAD { return NewStandard(key) }
