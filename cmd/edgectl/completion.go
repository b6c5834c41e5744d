package main

import (
	"time"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"
	"github.com/posener/complete"

	"multiedge/internal/clidoc"
	"multiedge/internal/config"
	"multiedge/internal/ipc"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell: bash, zsh or fish."`
}

// Help is what edgectl completion --help says beside the options.
func (*completionCmd) Help() string {
	return `Put one of these where the shell reads it when it starts:

	source <(edgectl completion bash)   # ~/.bashrc
	source <(edgectl completion zsh)    # ~/.zshrc, after compinit
	edgectl completion fish | source    # ~/.config/fish/config.fish`
}

// Run prints how the shell is to ask this program for completions.
func (c *completionCmd) Run(ctx *kong.Context) error {
	return (&kongcompletion.Completion{Shell: c.Shell, Code: true}).Run(ctx)
}

// completeLine answers a shell that asks how a command line may go on, and reports whether one did. The commands and
// options are the parser's; names of peers and links are the daemon's.
func completeLine(parser *kong.Kong) (asked bool) {
	return clidoc.Complete(parser, kongcompletion.WithPredictors(map[string]complete.Predictor{
		"file":       complete.PredictFiles("*"),
		"peer":       names("peer"),
		"authorised": names("authorised"),
		"link":       names("link"),
	}))
}

// completeTimeout is how long a completion may wait for the daemon, in place of --timeout: somebody waits at the
// keyboard.
const completeTimeout = 500 * time.Millisecond

// names predicts the names in one of the lists of the daemon at $EDGE_SOCKET, or at the usual place; none if there is
// nobody to ask.
func names(what string) complete.Predictor {
	return complete.PredictFunc(func(complete.Args) (names []string) {
		g := &globals{Socket: config.SocketPath(), Timeout: completeTimeout}
		list, err := get[[]struct{ Name string }](g, ipc.Message{Kind: ipc.KindStatus, What: what})
		if err != nil {
			return nil
		}
		for _, entry := range list {
			names = append(names, entry.Name)
		}
		return names
	})
}
