# A manual page for each function that edge.h declares, of its declaration and the comment above it. Functions below one
# comment share a page: the others are links (.so) to the first.
#
#	awk -v dir=FOLDER -f pages.awk edge.h
function quoted(s) { gsub(/\\/, "\\e", s); gsub(/-/, "\\-", s); if (s ~ /^[.']/) s = "\\&" s; return s }

# write makes the pages of what was collected.
function write(    i, first, file, list) {
	if (n == 0) { text = ""; return }
	first = names[1]
	for (i = 1; i <= n; i++) list = list (i > 1 ? ", " : "") names[i]
	file = dir "/" first ".3"
	printf ".TH %s 3\n.SH NAME\n%s \\- of libedge\n.SH SYNOPSIS\n.nf\n#include <edge.h>\n\n%s.fi\n", toupper(first), list,
		decls >file
	if (text != "") printf ".SH DESCRIPTION\n%s", text >file
	printf ".SH RETURN VALUE\nFunctions that return int: 0 or a count, or a negative error, which edge_message explains." \
		"\nHow long they wait, and what threads may do, is in\n.BR edge (3).\n.SH SEE ALSO\n.BR edge (3)\n" >file
	close(file)
	for (i = 2; i <= n; i++) {
		file = dir "/" names[i] ".3"
		printf ".so man3/%s.3\n", first >file
		close(file)
	}
	n = 0; decls = ""; text = ""
}

/^\/\*/ || (/^$/ && !comment) { if (!more) write() }
/^\/\*/ { comment = 1 }
comment {
	line = $0
	comment = line !~ /\*\//
	sub(/^\/\* ?/, "", line); sub(/^ \* ?/, "", line); sub(/ ?\*\/.*$/, "", line)
	if (line != "") text = text quoted(line) "\n"
	else if (text != "") text = text ".PP\n"
	next
}
/^EDGE_API/ || more {
	line = $0
	note = ""
	if (match(line, /\/\*.*\*\//)) { # said beside it
		note = substr(line, RSTART + 3, RLENGTH - 6)
		sub(/ *\/\*.*\*\//, "", line)
	}
	if (!more && match(line, /edge_[a-z0-9_]+\(/)) {
		names[++n] = substr(line, RSTART, RLENGTH - 1)
		if (note != "") text = text ".PP\n" names[n] ": " quoted(note) "\n"
	}
	sub(/^EDGE_API /, "", line)
	decls = decls quoted(line) "\n"
	more = line !~ /;$/
	next
}
/^enum .*;$/ && text != "" { decls = decls quoted($0) "\n"; next }
/^[^ \t]/ { text = "" } # the comment was about something else
END { write() }
