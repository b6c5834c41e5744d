package inspect

import (
	"fmt"
	"net"
	"slices"
)

// A configured link is an interface by its name when it is opened, and by its index from then on. What became of names
// since is looked up whenever somebody asks.

// lookUp says of links what the host's interfaces are called now.
func lookUp(links []LinkStatus, all []net.Interface) {
	for i := range links {
		l := &links[i]
		if l.isIP() {
			continue
		}
		named := slices.ContainsFunc(all, func(ifi net.Interface) bool { return ifi.Name == l.Name })
		if !l.Up {
			l.Missing = !named
			continue
		}
		at := slices.IndexFunc(all, func(ifi net.Interface) bool { return ifi.Index == l.index })
		if l.Device = ""; at >= 0 && all[at].Name != l.Name {
			l.Device = all[at].Name
		}
	}
}

// downText says why a link that is not up is not.
func (l *LinkStatus) downText() string {
	switch {
	case l.Missing:
		return "no interface has this name"
	case l.Error != "" || l.isIP():
		return l.Error
	}
	return "the interface is down"
}

// missing tells of a link whose interface is not there, of which edged starts with the others and takes it when it
// comes.
func (f *findings) missing(name string, all []net.Interface, running bool) {
	const text = "no interface has this name"
	if !running {
		f.add(FindingProblem, "link "+name, text, "choose one of: "+namesOf(all))
		return
	}
	f.add(FindingProblem, "link "+name, text,
		"edged uses it within two seconds once it is there; if it has another name now, correct name under [[link]] "+
			"in edged.toml and systemctl reload edged; there are: "+namesOf(all))
}

// renamed tells of a link whose interface has got another name while it was in use.
func (f *findings) renamed(l *LinkStatus) {
	if l.Up && l.Device != "" {
		f.add(FindingWarning, "link "+l.Name, fmt.Sprintf("its interface is called %s now; it stays in use, but after "+
			"a restart edged looks for %s", l.Device, l.Name),
			fmt.Sprintf("name = %q under [[link]] in edged.toml, then systemctl reload edged; or give the interface "+
				"its name back", l.Device))
	}
}
