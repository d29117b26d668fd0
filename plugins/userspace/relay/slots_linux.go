// SPDX-License-Identifier: Apache-2.0

package relay

// slots find the watcher of an event. A slot that is used again has another generation,
// so that an event of the watcher before, still on its way, finds none. The zero token
// finds none either.
type slots struct {
	all  []slot
	free []int32
}

type slot struct {
	watcher    watcher // nil: free
	generation int32
}

// A token is what an event carries to say which watcher it is for.
type token struct{ slot, generation int32 }

// A watcher is told what happens to its socket.
type watcher interface {
	onEvent(events uint32) // as epoll names them
	onClose()              // the loop ends
}

func (s *slots) put(w watcher) token {
	if len(s.free) == 0 {
		s.all = append(s.all, slot{generation: 1})
		s.free = append(s.free, int32(len(s.all)-1))
	}
	i := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.all[i].watcher = w
	return token{i, s.all[i].generation}
}

func (s *slots) drop(t token) {
	if s.find(t) == nil {
		return
	}
	s.all[t.slot] = slot{generation: t.generation + 1}
	s.free = append(s.free, t.slot)
}

// find returns the watcher of t. Nil: there is none any more.
func (s *slots) find(t token) watcher {
	if int(t.slot) >= len(s.all) || s.all[t.slot].generation != t.generation {
		return nil
	}
	return s.all[t.slot].watcher
}
