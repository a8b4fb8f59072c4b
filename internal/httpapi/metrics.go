package httpapi

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics count what the server does: by route, never by tenant, principal or
// artifact.
type metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	took      *prometheus.HistogramVec
	in, out   prometheus.Counter
	published prometheus.Counter
	strangers prometheus.Counter
	cut       prometheus.Counter
}

func newMetrics(s *Server) *metrics {
	name := func(n, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "leafproof", Subsystem: "http", Name: n, Help: help}
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(name("requests_total", "Requests that were answered."), []string{"route", "method", "status"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "leafproof", Subsystem: "http", Name: "request_seconds", Help: "How long an answer took, to its last byte.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60},
		}, []string{"route"}),
		in:        prometheus.NewCounter(name("received_bytes_total", "Bytes of bodies that came.")),
		out:       prometheus.NewCounter(name("sent_bytes_total", "Bytes of answers.")),
		published: prometheus.NewCounter(name("published_total", "Artifacts that were published.")),
		strangers: prometheus.NewCounter(name("unauthenticated_total", "Tokens and certificates that are nobody's.")),
		cut:       prometheus.NewCounter(name("cut_total", "Answers that ended before their end.")),
	}
	now := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "leafproof", Subsystem: "http", Name: "requests_under_way", Help: "Requests that are being answered."}, func() float64 {
		s.slots.mu.Lock()
		defer s.slots.mu.Unlock()
		return float64(s.slots.now)
	})
	m.registry.MustRegister(m.requests, m.took, m.in, m.out, m.published, m.strangers, m.cut, now,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// note counts one request. The method is one that the route has, or none.
func (m *metrics) note(c *call, pattern string, status int, took time.Duration, in int64, cut bool) {
	method := "none"
	if c.route != nil {
		method = c.route.method
	}
	m.requests.WithLabelValues(pattern, method, strconv.Itoa(status)).Inc()
	m.took.WithLabelValues(pattern).Observe(took.Seconds())
	m.in.Add(float64(in))
	m.out.Add(float64(c.w.bytes))
	if cut {
		m.cut.Inc()
	}
}

func (c *call) showMetrics() error {
	promhttp.HandlerFor(c.s.metrics.registry, promhttp.HandlerOpts{}).ServeHTTP(&c.w, c.r)
	return nil
}
