package testobjects

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Workloads is the number of ReplicaSets that own the pods.
const Workloads = 300

var (
	domains = []string{
		"checkout", "ledger", "catalog", "search", "pricing", "identity", "session", "inventory", "shipping", "invoice",
		"payment", "profile", "media", "thumbnail", "recommendation", "notification", "audit", "metrics", "gateway", "support",
	}
	roles = []string{
		"api", "worker", "consumer", "scheduler", "frontend", "cache", "proxy", "exporter",
		"importer", "indexer", "batch", "stream", "sync", "web", "admin",
	}
	tiers    = []string{"frontend", "backend", "data", "edge"}
	teams    = []string{"commerce", "platform", "growth", "core", "mobile", "finance", "insights"}
	settings = []string{
		"DATABASE_URL", "REDIS_ADDRESS", "KAFKA_BROKERS", "KAFKA_CONSUMER_GROUP", "HTTP_READ_TIMEOUT",
		"FEATURE_FLAGS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT", "S3_BUCKET", "MAX_IN_FLIGHT", "LOG_LEVEL", "GOMEMLIMIT",
	}
)

// workload contains the properties that all pods of one ReplicaSet share.
type workload struct {
	app, namespace string
	hash           string
	version        string
	tier, team     string
	uid            types.UID
	image          string
	imageID        string
	proxyImage     string
	proxyImageID   string
	port           int32
	env            [][2]string
	checksum       string
	cpu, memory    string
}

func newWorkload(n int, seed int64) workload {
	s := newSource(streamWorkload, n, seed)
	app := domains[n%len(domains)] + "-" + roles[n/len(domains)%len(roles)]
	w := workload{
		app:       app,
		namespace: namespaceOf(n),
		// The hash is part of the pods' names, which do not depend on the seed.
		hash:     suffix(n) + suffix(n + Workloads)[:4],
		version:  fmt.Sprintf("%d.%d.%d", 1+s.IntN(4), s.IntN(30), s.IntN(12)),
		tier:     s.pick(tiers),
		team:     s.pick(teams),
		uid:      s.uid(),
		imageID:  s.hex(64),
		port:     int32(8000 + s.IntN(1000)),
		checksum: s.hex(64),
		cpu:      fmt.Sprintf("%dm", 50*(1+s.IntN(20))),
		memory:   fmt.Sprintf("%dMi", 128<<s.IntN(5)),
	}
	w.image = fmt.Sprintf("registry.example.com/%s/%s:%s", w.team, app, w.version)
	w.proxyImage = fmt.Sprintf("registry.example.com/mesh/proxy:1.%d.3", 20+n%3)
	w.proxyImageID = newSource(streamWorkload, Workloads+n%3, seed).hex(64)
	skipped := s.IntN(len(settings))
	for k, name := range settings {
		if k != skipped {
			w.env = append(w.env, [2]string{name, w.setting(s, name)})
		}
	}
	return w
}

func (w workload) setting(s source, name string) string {
	switch {
	case strings.HasSuffix(name, "URL"):
		return fmt.Sprintf("postgres://%s@db-%02d.%s.svc:5432/%s?sslmode=verify-full", w.app, s.IntN(20), w.namespace, w.app)
	case strings.HasSuffix(name, "ENDPOINT"), strings.HasSuffix(name, "ADDRESS"), strings.HasSuffix(name, "BROKERS"):
		return fmt.Sprintf("%s-%02d.platform.svc.cluster.local:%d", w.tier, s.IntN(40), 4000+s.IntN(6000))
	case strings.HasSuffix(name, "TIMEOUT"), strings.HasSuffix(name, "TTL"), strings.HasSuffix(name, "BACKOFF"):
		return fmt.Sprintf("%ds", 1+s.IntN(120))
	case strings.HasSuffix(name, "LEVEL"):
		return s.pick([]string{"debug", "info", "warn"})
	case strings.HasSuffix(name, "NAME"), strings.HasSuffix(name, "GROUP"), strings.HasSuffix(name, "BUCKET"):
		return w.app + "-" + s.hex(6)
	default:
		return fmt.Sprint(1 + s.IntN(4096))
	}
}
