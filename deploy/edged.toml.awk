# The manual page edged.toml(5), of the example configuration, which has every key: awk -f edged.toml.awk edged.toml
function quoted(s) { gsub(/\\/, "\\e", s); gsub(/-/, "\\-", s); gsub(/"/, "\\(dq", s); if (s ~ /^[.']/) s = "\\&" s; return s }
BEGIN {
	print ".TH EDGED.TOML 5\n.SH NAME\nedged.toml \\- configuration of edged\n.SH SYNOPSIS\n.I /etc/edged/edged.toml"
	print ".SH DESCRIPTION\nThe file is in TOML: lines of KEY = VALUE, and tables of them behind a [NAME] or [[NAME]]."
	print "A table with two brackets may occur several times. Text is in quotes, as are times (\\(dq50us\\(dq, \\(dq5s\\(dq)"
	print "and sizes (\\(dq8GiB\\(dq). Only the links are required, and keys that edged does not know are refused. Values shown"
	print "are the defaults, or examples. Flags of"
	print ".BR edged (8)\nreplace what the file says."
	print ".PP\n.B systemctl reload edged\napplies changes of links, peers, services, limits and the log's level; others take"
	print "effect at a restart, and edgectl status and doctor name them.\n.SH KEYS"
}
/^##/ { about = about quoted(substr($0, 4)) "\n"; next }
/^(# )?\[/ { sub(/^# /, ""); print ".SS " quoted($0); if (about != "") printf "%s", about; about = ""; next }
/^(# )?[a-z_]+ = / {
	sub(/^# /, "")
	note = ""
	if (match($0, / +# /)) { note = substr($0, RSTART + RLENGTH); $0 = substr($0, 1, RSTART - 1) }
	print ".TP\n.B " quoted($0)
	if (note != "") print quoted(note) "."
	if (about != "") printf "%s", about
	about = ""
}
END {
	print ".SH FILES\n.I /etc/edged/edged.toml,\n.I /etc/edged/peers"
	print ".SH EXAMPLES\n.nf\n.RS\n[[link]]\nname = \\(dqeth1\\(dq\n\n[[service]]\nname = \\(dqtcp/*\\(dq\nuser = \\(dqwww\\(dq\n.RE\n.fi"
	print ".SH SEE ALSO\n.BR edged (8),\n.BR edgectl (1)"
}
