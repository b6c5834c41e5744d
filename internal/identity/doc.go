// Package identity keeps who a node is and whom it trusts in files: the private key, and the authorised peers. What
// they mean is package secure's.
package identity
