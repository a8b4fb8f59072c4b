package httpapi

import "time"

// Route is one line of the table of routes.
type Route struct {
	Method, Path, Op string
	Open             bool
}

// Routes are those of a server.
func (s *Server) Routes() []Route { return exported(s.routes) }

// Table are those of any server, with none that its options add.
func (s *Server) Table() []Route { return exported(s.table()) }

func exported(list []route) (out []Route) {
	for _, rt := range list {
		out = append(out, Route{rt.method, rt.path, rt.op, rt.open})
	}
	return out
}

// StrictDescription refuses what is not described in answers too.
func StrictDescription() []byte { return describe(true) }

// The bounds that tests come up to.
const (
	MaxJSON   = maxJSON
	MaxInline = maxInline
	MaxRanges = maxRanges
	MaxDepth  = maxDepth
)

// SetPatience shortens how long a body or a reader may stand still.
func SetPatience(d time.Duration) (restore func()) {
	old := patience
	patience = d
	return func() { patience = old }
}

// Held is how many bytes in memory are accounted for.
func (s *Server) Held() int64 {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	return s.room.now + int64(len(s.room.of))
}

// SetConnections lessens how many connections a door has.
func SetConnections(n int) (restore func()) {
	old := maxConnections
	maxConnections = n
	return func() { maxConnections = old }
}
