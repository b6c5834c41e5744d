package inspect

import (
	"os"
	"path/filepath"

	"multiedge/internal/config"
)

// User 0 of a container is user 0 of its host, unless the container has a user namespace: a daemon that trusts root, or
// whose socket is root's, trusts root in every container that mounts the socket's directory.

// InContainer reports whether this process runs in a container, by the marks that engines leave.
func InContainer() bool { return inContainer("/", os.Getenv) }

func inContainer(root string, env func(string) string) bool {
	if env("container") != "" || env("KUBERNETES_SERVICE_HOST") != "" {
		return true
	}
	for _, mark := range []string{".dockerenv", "run/.containerenv"} {
		if _, err := os.Stat(filepath.Join(root, mark)); err == nil {
			return true
		}
	}
	return false
}

// SharedRoot returns what root in other containers may do to a daemon that runs as user uid in a container, and what to
// do about it; empty: nothing.
func SharedRoot(admins config.Admins, uid int) (text, remedy string) {
	const as = "start it with --user USER --admin USER (deploy/kubernetes.yaml)"
	switch {
	case admins.Has(0):
		return "user 0 of every container that reaches the socket may drain this daemon and trace all frames", as
	case uid == 0:
		return "the socket belongs to user 0: user 0 of every container that mounts its directory may put another " +
			"in its place", as + ", and mount the directory read-only in other containers"
	}
	return "", ""
}

// container looks at who else is the daemon's root.
func (in *Inspector) container(f *findings) {
	if !in.node.Serving || !InContainer() {
		return
	}
	admins, err := in.node.Config.ResolveAdmins()
	if err != nil {
		return // the daemon resolved them when it started
	}
	if text, remedy := SharedRoot(admins, os.Geteuid()); text != "" {
		f.add(FindingWarning, "socket", text, remedy)
	}
}
