package daemon

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"weak"

	"multiedge/internal/inspect"
	"multiedge/internal/ipc"
)

// cuts remembers where pages of the latest snapshot's lists begin, so that a page costs little more than what is in it,
// whichever is asked for.
type cuts struct {
	mu sync.Mutex
	of weak.Pointer[inspect.Snapshot]
	by map[string]*starts
}

// starts is where the pages of a list begin, from page 1 on, as far as they were looked at.
type starts struct {
	mu sync.Mutex
	at []int
}

// list returns the starts of a list by its name, nil if there is no such list.
func (c *cuts) list(snap *inspect.Snapshot, what string) *starts {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of := weak.Make(snap); of != c.of {
		c.of, c.by = of, map[string]*starts{}
	}
	s := c.by[what]
	if s == nil && slices.Contains(whats, what) {
		s = &starts{}
		c.by[what] = s
	}
	return s
}

// before returns the last page known, that one at most, and where it begins.
func (s *starts) before(page int) (known, at int) {
	if s == nil {
		return 0, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known = min(page, len(s.at)); known > 0 {
		at = s.at[known-1]
	}
	return known, at
}

func (s *starts) note(page, at int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if page == len(s.at)+1 {
		s.at = append(s.at, at)
	}
}

// page answers with page m.Page of a list. Pages are cut where they are full, so an entry that comes or goes between
// two requests can be seen twice or missed, as in any listing of a live system. s may be nil.
func page[T any](m *ipc.Message, list []T, s *starts) (*ipc.Message, error) {
	reply := m.Reply()
	n, from := s.before(m.Page)
	body := []byte{'['}
	for i := from; i < len(list); i++ {
		entry, err := json.Marshal(list[i])
		if err != nil {
			return nil, err
		}
		if len(entry) > inspect.PageRoom {
			return nil, fmt.Errorf("an entry of %d bytes does not fit in a page", len(entry))
		}
		if len(body)+len(entry) > inspect.PageRoom {
			s.note(n+1, i)
			if n == m.Page {
				reply.More = true
				break
			}
			body, n = body[:1], n+1
		}
		if len(body) > 1 {
			body = append(body, ',')
		}
		body = append(body, entry...)
	}
	if n < m.Page {
		body = body[:1] // past the end
	}
	reply.Body = append(body, ']')
	return reply, nil
}
