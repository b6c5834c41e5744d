// Package events gives an export an event queue of its own, or a function that handles its notifications (VMMC §3.2),
// so that unread notifications of one export hold up none of the others on the connection.
package events
