package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"multiedge/internal/daemon"
	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
)

type pingCmd struct {
	Peer     string        `arg:"" predictor:"peer" help:"Node name, or node id in hexadecimal."`
	Count    int           `short:"c" default:"4" help:"Number of pings (default: ${default})."`
	Interval time.Duration `short:"i" default:"200ms" help:"Pause between two pings (default: ${default})."`
	Wait     time.Duration `short:"W" default:"2s" help:"How long to wait for each answer (default: ${default})."`
}

// Validate is called before Run.
func (c *pingCmd) Validate() error {
	if c.Count < 1 {
		return fmt.Errorf("--count %d: must be at least 1", c.Count)
	}
	return nil
}

// Run asks for one ping at a time, so that results appear as they come. It fails if any ping did.
func (c *pingCmd) Run(g *globals) error {
	all := daemon.PingReport{Schema: inspect.StatusSchema, Peer: c.Peer}
	g.Timeout = max(g.Timeout, c.Wait+time.Second)
	lost := 0
	for seq := range c.Count {
		if seq > 0 {
			time.Sleep(c.Interval)
		}
		body, err := g.ask(ipc.Message{Kind: ipc.KindPing, Peer: c.Peer, Count: 1, Timeout: c.Wait})
		if err != nil {
			return err
		}
		var r daemon.PingReport
		if err := json.Unmarshal(body, &r); err != nil || len(r.Results) != 1 {
			return fmt.Errorf("the daemon's answer to ping cannot be read: %s", body)
		}
		res := r.Results[0]
		res.Seq = seq
		all.Results = append(all.Results, res)
		if res.Status != "ok" {
			lost++
		}
		if !g.JSON {
			if err := c.print(g, &res); err != nil {
				return err
			}
		}
	}
	switch {
	case g.JSON:
		if err := printJSON(g, all); err != nil {
			return err
		}
	case c.Count > 1:
		if _, err := io.WriteString(g.out, clean(pingSummary(&all))); err != nil {
			return err
		}
	}
	if lost > 0 {
		return errUnwell
	}
	return nil
}

func (c *pingCmd) print(g *globals, r *daemon.PingResult) error {
	text := fmt.Sprintf("%s: seq=%d time=%s\n", c.Peer, r.Seq, micros(r.Nanos))
	if r.Status != "ok" {
		text = fmt.Sprintf("%s: seq=%d %s: %s\n", c.Peer, r.Seq, r.Status, r.Text)
	}
	_, err := io.WriteString(g.out, clean(text))
	return err
}

// pingSummary is the last line of several pings.
func pingSummary(r *daemon.PingReport) string {
	var least, most, sum, answered int64
	for i := range r.Results {
		n := r.Results[i].Nanos
		if r.Results[i].Status != "ok" {
			continue
		}
		if answered == 0 || n < least {
			least = n
		}
		most, sum, answered = max(most, n), sum+n, answered+1
	}
	text := fmt.Sprintf("%s: %d of %d answered", r.Peer, answered, len(r.Results))
	if answered > 0 {
		text += fmt.Sprintf(", round trip min %s avg %s max %s", micros(least), micros(sum/answered), micros(most))
	}
	return text + "\n"
}

type doctorCmd struct {
	Reach     string   `placeholder:"NAME" predictor:"authorised" help:"Also dial that peer, and say what is in the way."`
	Link      []string `short:"l" placeholder:"NAME" help:"Interfaces to examine when no daemon runs."`
	KeyFile   string   `placeholder:"FILE" predictor:"file" help:"Key file to examine when no daemon runs (default: edged's own place)."`
	PeersFile string   `placeholder:"FILE" predictor:"file" help:"Authorised-peers file to examine when no daemon runs (default: edged's own place)."`
}

// Run asks the daemon, which knows its own rights and links; without one it examines this process and the named links.
// It fails if there is a problem.
func (c *doctorCmd) Run(g *globals) error {
	var reached []inspect.Finding
	if c.Reach != "" { // first: the session shows what doctor then sees of it
		var err error
		if reached, err = g.reach(c.Reach); err != nil {
			return err
		}
	}
	findings, err := get[[]inspect.Finding](g, ipc.Message{Kind: ipc.KindDoctor})
	if err == nil {
		findings = append(findings, g.versions()...)
		findings = append(findings, reached...)
	} else {
		findings = append(findings, inspect.Finding{Severity: inspect.FindingProblem, About: "daemon",
			Text: "cannot be asked", Remedy: err.Error()})
		findings = append(findings, inspect.CheckHost(c.Link)...)
		findings = append(findings, inspect.CheckIdentity(c.KeyFile, c.PeersFile)...)
	}
	if g.JSON {
		if err := printJSON(g, findings); err != nil {
			return err
		}
	} else if _, err := io.WriteString(g.out, clean(findingsText(findings))); err != nil {
		return err
	}
	if slices.ContainsFunc(findings, func(f inspect.Finding) bool { return f.Severity == inspect.FindingProblem }) {
		return errUnwell
	}
	return nil
}

// versionRemedy is what to do when tool and daemon are of different versions, as after an upgrade.
const versionRemedy = "systemctl restart edged, when that suits the programs (edgectl drain)"

// otherVersion says that the daemon has another version than this tool; empty: it has not.
func otherVersion(daemon string) string {
	if daemon == version {
		return ""
	}
	return fmt.Sprintf("the daemon that runs is version %s, and edgectl is %s", daemon, version)
}

// versions tells of a daemon that an upgrade has left behind.
func (g *globals) versions() []inspect.Finding {
	remote, err := get[*daemon.VersionReport](g, ipc.Message{Kind: ipc.KindVersion})
	if err != nil {
		return nil // it answered a moment ago; whoever asks next learns that it went away
	}
	if text := otherVersion(remote.Version); text != "" {
		return []inspect.Finding{{Severity: inspect.FindingWarning, About: "version", Text: text,
			Remedy: versionRemedy}}
	}
	return nil
}

func findingsText(findings []inspect.Finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%-8s %s: %s\n", f.Severity, f.About, strings.ReplaceAll(f.Text, "\n", "; "))
		if f.Remedy != "" {
			fmt.Fprintf(&b, "         -> %s\n", f.Remedy)
		}
	}
	return b.String()
}

type drainCmd struct {
	Undo bool `help:"Accept new connections and memory again."`
}

func (c *drainCmd) Run(g *globals) error {
	m, text := ipc.Message{Kind: ipc.KindDrain},
		"draining: existing connections go on, nothing new is taken until edgectl drain --undo or a restart (edgectl "+
			"client shows who is left)"
	if c.Undo {
		m.What, text = daemon.DrainUndo, "draining no more: new connections and memory are taken again"
	}
	if _, err := g.ask(m); err != nil {
		return err
	}
	if g.JSON {
		return printJSON(g, map[string]any{"schema": inspect.StatusSchema, "draining": !c.Undo})
	}
	_, err := fmt.Fprintln(g.out, text)
	return err
}

type versionCmd struct{}

// Run shows edgectl's own version also when no daemon runs; then it fails.
func (*versionCmd) Run(g *globals) error {
	remote, err := get[*daemon.VersionReport](g, ipc.Message{Kind: ipc.KindVersion})
	if g.JSON {
		if perr := printJSON(g, map[string]any{"schema": inspect.StatusSchema, "edgectl": version,
			"go_version": runtime.Version(), "daemon": remote}); perr != nil {
			return perr
		}
		return err
	}
	if _, werr := fmt.Fprintf(g.out, "edgectl %s (%s)\n", version, runtime.Version()); werr != nil || err != nil {
		return cmp.Or(err, werr)
	}
	_, err = fmt.Fprintf(g.out, "edged   %s (%s), node %s (%s)\n", remote.Version, remote.GoVersion, remote.Name,
		remote.Node)
	return err
}
