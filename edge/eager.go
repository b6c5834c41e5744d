package edge

import "multiedge/internal/ipc"

// Messages that travel while they are composed (EDT §4): package compose gives them to programs.

// compose begins one.
func (c *Conn) compose(w *Work) (Op, error) {
	op, err := c.composeOnce(w)
	if err == ErrAgain && c.d.poll() > 0 {
		op, err = c.composeOnce(w)
	}
	return op, err
}

func (c *Conn) composeOnce(w *Work) (Op, error) {
	d := c.d
	switch {
	case d.features&ipc.FeatureEager == 0:
		return Op{}, errNoEager
	case w.Kind != Write && w.Kind != Send, w.Flags != 0, w.Imm != 0, len(w.Inline)+len(w.Pieces) > 0, w.Local == nil:
		return Op{}, errCompose
	case w.Len < 1 || w.Len > ipc.MaxEager:
		return Op{}, ErrTooLong
	}
	d.out.post.Lock()
	defer d.out.post.Unlock()
	if err := c.usable(); err != nil {
		return Op{}, err
	}
	if inSpace(w) {
		return Op{}, errMessageSpace
	}
	if err := c.encode(w, &d.out.sqe); err != nil {
		return Op{}, err
	}
	d.out.sqe.Op = ipc.OpCompose
	op, err := c.launch(w.Local, noBounce, w)
	if err != nil {
		return Op{}, err
	}
	d.slots.list[op.slot].composing = true
	d.publish()
	return op, nil
}

// say posts what is said about a composed message.
func (d *attachment) say(c *Conn, op Op, e ipc.SQE) error {
	err := d.sayOnce(c, op, &e)
	if err == ErrAgain && d.poll() > 0 {
		err = d.sayOnce(c, op, &e)
	}
	return err
}

func (d *attachment) sayOnce(c *Conn, op Op, e *ipc.SQE) error {
	d.out.post.Lock()
	defer d.out.post.Unlock()
	s := &d.slots.list[op.slot]
	switch {
	case op.settled():
		if err := op.Err(); err != nil {
			return err
		}
		return errComposed
	case !s.composing:
		return errComposed
	case d.out.detached:
		return ErrAgain
	}
	if n, err := d.out.sq.Room(); n == 0 || err != nil {
		if err != nil {
			go d.fail(ErrDaemonDown)
		}
		return ErrAgain
	}
	e.Conn, e.Token = c.id, opKey(op.slot, op.gen)
	if e.Op != ipc.OpWrote {
		s.composing = false
	}
	d.out.sqe = *e
	d.out.sq.Put(&d.out.sqe)
	d.publish()
	return nil
}

var (
	errNoEager = failure("the daemon is older and composes no messages; upgrade it", ErrVersion)
	errCompose = invalid("Compose takes a Write or Send with Local, LocalOff and Len; fences, Notify and Imm belong " +
		"to Commit")
	errComposed = invalid("the message is committed or aborted already")
)
