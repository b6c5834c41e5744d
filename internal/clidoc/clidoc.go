// Package clidoc makes manual pages and completion scripts of the commands and flags of a program: their descriptions
// are written once, where they are declared, and say the same everywhere.
package clidoc

import (
	"embed"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"
)

// sections are what no flag or command says: exit status, files, examples. They are in the formatter's language, by the
// name of the program.
//
//go:embed sections
var sections embed.FS

// Flags make the documents; a program embeds them. make packages calls them. Each prints as soon as it is read,
// whatever else a command line needs.
type Flags struct {
	Man  manFlag  `hidden:"" name:"man-page" help:"Print the manual page and exit."`
	Bash bashFlag `hidden:"" name:"completion-bash" help:"Print a completion script for bash and exit."`
	Zsh  zshFlag  `hidden:"" name:"completion-zsh" help:"Print a completion script for zsh and exit."`
	Fish fishFlag `hidden:"" name:"completion-fish" help:"Print a completion script for fish and exit."`
}

type manFlag bool
type bashFlag bool
type zshFlag bool
type fishFlag bool

// BeforeReset implements kong's hook, as those of the others do.
func (manFlag) BeforeReset(app *kong.Kong) error {
	Man(app.Stdout, app.Model)
	app.Exit(0)
	return nil
}

func (bashFlag) BeforeReset(app *kong.Kong) error { return printScript(app, "bash") }
func (zshFlag) BeforeReset(app *kong.Kong) error  { return printScript(app, "zsh") }
func (fishFlag) BeforeReset(app *kong.Kong) error { return printScript(app, "fish") }

func printScript(app *kong.Kong, shell string) error {
	fmt.Fprint(app.Stdout, script(shell, app.Model.Name))
	app.Exit(0)
	return nil
}

// Complete answers a shell that asks how a command line may go on (COMP_LINE), and reports whether one did.
func Complete(parser *kong.Kong, options ...kongcompletion.Option) (asked bool) {
	kongcompletion.Register(parser, append(options, kongcompletion.WithExitFunc(func(int) { asked = true }))...)
	return asked
}

// script returns what makes a shell ask the program of that name how its command line may go on.
func script(shell, name string) string {
	ask := fmt.Sprintf("complete -o default -o bashdefault -C %[1]s %[1]s\n", name)
	switch shell {
	case "bash":
		return ask
	case "zsh":
		return "#compdef " + name + "\nautoload -U +X bashcompinit && bashcompinit\n" + ask
	default:
		return fmt.Sprintf(`function __complete_%[1]s
    set -lx COMP_LINE (commandline -cp)
    test -z (commandline -ct)
    and set COMP_LINE "$COMP_LINE "
    %[1]s
end
complete -f -c %[1]s -a "(__complete_%[1]s)"
`, name)
	}
}

// Man writes the manual page of a program: section 8 for a daemon, whose name ends in d, else 1.
func Man(w io.Writer, app *kong.Application) {
	section := 1
	if strings.HasSuffix(app.Name, "ed") {
		section = 8
	}
	help, detail, _ := strings.Cut(app.Help, "\n")
	fmt.Fprintf(w, ".TH %s %d\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\n", strings.ToUpper(app.Name), section,
		app.Name, roff(strings.TrimSuffix(help, ".")), app.Name)
	if len(commands(app.Node)) > 0 {
		fmt.Fprint(w, "[options] command\n")
	} else {
		fmt.Fprint(w, "[options]\n")
	}
	if text := strings.TrimSpace(detail + "\n\n" + app.Detail); text != "" {
		fmt.Fprintf(w, ".SH DESCRIPTION\n%s\n", paragraphs(text))
	}
	fmt.Fprint(w, ".SH OPTIONS\n")
	flags(w, app.Node)
	if list := commands(app.Node); len(list) > 0 {
		fmt.Fprint(w, ".SH COMMANDS\n")
		for _, c := range list {
			command(w, c)
		}
	}
	more, err := sections.ReadFile("sections/" + app.Name + ".roff")
	if err == nil { // else the program has none
		w.Write(more)
	}
	fmt.Fprint(w, ".SH SEE ALSO\n.BR edged (8),\n.BR edged.toml (5),\n.BR edgectl (1),\n.BR edgebench (1),\n"+
		".BR edgefault (1),\n.BR edgestudy (1)\n.PP\nThe "+
		"documents in /usr/share/doc/edged.\n")
}

// commands are those of a node that people see.
func commands(n *kong.Node) (list []*kong.Node) {
	for _, c := range n.Children {
		if !c.Hidden {
			list = append(list, c)
		}
	}
	return list
}

// command writes one command and those below it.
func command(w io.Writer, c *kong.Node) {
	fmt.Fprintf(w, ".SS %s\n%s\n", roff(strings.TrimSpace(c.Summary())), roff(c.Help))
	if c.Detail != "" {
		fmt.Fprintf(w, ".PP\n%s\n", paragraphs(c.Detail))
	}
	for _, p := range c.Positional {
		fmt.Fprintf(w, ".TP\n.I %s\n%s\n", roff(p.Summary()), roff(p.Help))
	}
	flags(w, c)
	for _, below := range commands(c) {
		command(w, below)
	}
}

// flags writes the options that a node itself has.
func flags(w io.Writer, n *kong.Node) {
	for _, f := range n.Flags {
		if f.Hidden {
			continue
		}
		name := "\\-\\-" + roff(f.Name)
		if f.Short != 0 {
			name = "\\-" + string(f.Short) + ", " + name
		}
		if !f.IsBool() && !f.IsCounter() {
			name += "=" + roff(f.FormatPlaceHolder())
		}
		fmt.Fprintf(w, ".TP\n.B %s\n%s\n", name, roff(f.Help))
	}
}

// paragraphs keeps empty lines and lines that are set in.
func paragraphs(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "":
			b.WriteString(".PP\n")
		case line[0] == '\t' || line[0] == ' ':
			b.WriteString(".nf\n.RS\n" + roff(trimmed) + "\n.RE\n.fi\n")
		default:
			b.WriteString(roff(trimmed) + "\n")
		}
	}
	return strings.TrimSpace(b.String())
}

// roff makes text of one line that the formatter takes as it is.
func roff(text string) string {
	text = strings.NewReplacer("\\", "\\e", "-", "\\-", "\n", " ").Replace(text)
	if text != "" && (text[0] == '.' || text[0] == '\'') {
		text = "\\&" + text
	}
	return text
}
