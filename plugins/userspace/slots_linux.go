// SPDX-License-Identifier: Apache-2.0

package userspace

// slots say whom an event is for. A slot that is used again has another turn, so
// that an event of the one before, still under way, finds nobody. The zero ticket
// is nobody's.
type slots struct {
	all  []slot
	free []int32
}

type slot struct {
	who  watcher // nil: free
	turn int32
}

// A watcher is told what has happened to its socket, in the words of epoll.
type watcher interface {
	happened(events uint32)
	end() // the loop ends
}

func (s *slots) put(w watcher) ticket {
	if len(s.free) == 0 {
		s.all = append(s.all, slot{turn: 1})
		s.free = append(s.free, int32(len(s.all)-1))
	}
	i := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.all[i].who = w
	return ticket{i, s.all[i].turn}
}

func (s *slots) drop(t ticket) {
	if s.find(t) == nil {
		return
	}
	s.all[t.slot] = slot{turn: t.turn + 1}
	s.free = append(s.free, t.slot)
}

// find is who has t. Nil: nobody any more.
func (s *slots) find(t ticket) watcher {
	if int(t.slot) >= len(s.all) || s.all[t.slot].turn != t.turn {
		return nil
	}
	return s.all[t.slot].who
}
