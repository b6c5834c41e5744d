package ipc

// form is what follows the header: a struct of size bytes, header included, whose fields are at fixed places.
type form struct {
	size   int
	fields func(f *body, m *Message)
}

// bare is a message that is its header alone.
var bare = form{headerSize, func(*body, *Message) {}}

// formats says how every kind is sent: as a request or an event, and as the reply to it. fields is nil where the body
// is JSON. Kinds that are not here are decoded as bare: the receiver answers them (CodeUnknownKind) or ignores them.
var formats = map[Kind]struct {
	first, reply form
}{
	KindHello:      {form{128, helloRequest}, form{184, helloReply}},
	KindRegister:   {form{40, registerRequest}, form{32, registerReply}},
	KindMapped:     {form{24, oneRegion}, bare},
	KindDeregister: {form{24, oneRegion}, bare},
	KindDial:       {form{744, dialRequest}, form{680, connected}},
	KindListen:     {form{88, oneService}, bare},
	KindUnlisten:   {form{88, oneService}, bare},
	KindAccept:     {form{544, acceptRequest}, form{680, connected}},
	KindRefuse:     {form{1056, refuseRequest}, bare},
	KindExport:     {form{136, exportRequest}, form{40, exportReply}},
	KindRevoke:     {form{32, keyOfConn}, bare},
	KindClose:      {form{24, oneConn}, form{24, oneConn}},
	KindAbort:      {form{24, oneConn}, form{24, oneConn}},
	KindMap:        {form{48, mapRequest}, form{48, mapReply}},
	KindAdvise:     {form{40, adviseRequest}, bare},
	KindUsage:      {form{40, usageRequest}, form{112, usageReply}},

	KindQueue:   {bare, form{24, oneQueue}},
	KindUnqueue: {form{24, oneQueue}, bare},
	KindJoin:    {form{24, connAndQueue}, bare},

	KindIncoming:  {form{744, incomingEvent}, bare},
	KindAdvert:    {form{120, advertEvent}, bare},
	KindWithdrawn: {form{32, keyOfConn}, bare},
	KindEnded:     {form{1056, endEvent}, bare},
	KindClosed:    {form{1056, endEvent}, bare},

	KindStatus:  {},
	KindDoctor:  {},
	KindVersion: {},
	KindPing:    {},
	KindDrain:   {},
	KindReload:  {},
	KindTrace:   {},
	KindWatch:   {},
	KindEvent:   {},
}

// failure is the reply of any kind that says why its request failed.
var failure = form{1056, failedReply}
