package identity

import (
	"os"
	"path/filepath"
	"strings"
)

// KeyPath is where the private key is unless configured: $STATE_DIRECTORY/key under systemd, else /var/lib/edged/key
// for root, else $XDG_STATE_HOME/edged/key or ~/.local/state/edged/key. Empty when an ordinary user has no home
// directory.
func KeyPath() string {
	if dir := serviceDir("STATE_DIRECTORY"); dir != "" {
		return filepath.Join(dir, "key")
	}
	if os.Geteuid() == 0 {
		return "/var/lib/edged/key"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "edged", "key")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "state", "edged", "key")
}

// PeersPath is where the authorised peers are unless configured: $CONFIGURATION_DIRECTORY/peers under systemd, else
// /etc/edged/peers for root, else beside the private key, which the user may write.
func PeersPath(key string) string {
	if dir := serviceDir("CONFIGURATION_DIRECTORY"); dir != "" {
		return filepath.Join(dir, "peers")
	}
	if os.Geteuid() == 0 {
		return "/etc/edged/peers"
	}
	if key == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(key), "peers")
}

// serviceDir is the first of the directories that systemd gives a service in a variable.
func serviceDir(variable string) string {
	dir, _, _ := strings.Cut(os.Getenv(variable), ":")
	if !filepath.IsAbs(dir) {
		return ""
	}
	return dir
}
