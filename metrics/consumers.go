package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/informctl/informctl/durable"
)

// NewConsumers returns a collector of the statuses of durable consumers, whose names
// differ. Each collection calls Status of each once. The collector is safe for concurrent
// use.
func NewConsumers(consumers ...interface{ Status() durable.Status }) prometheus.Collector {
	return consumerCollector(consumers)
}

type consumerCollector []interface{ Status() durable.Status }

var (
	ofConsumer      = []string{"consumer"}
	ofConsumerKeys  = []string{"consumer", "state"}
	ofConsumerScope = []string{"consumer", "scope"}

	consumerActive = describe("consumer_active", "1 when the consumer works, 0 when it waits for its election or was deposed.", ofConsumer)
	consumerKeys   = describe("consumer_keys", "Keys that are left to do, by state; failed ones are counted where they are, too.", ofConsumerKeys)
	consumerBehind = describe("consumer_behind_commits", "Commits in the log that are after the consumer's place.", ofConsumerScope)
	consumerLacks  = describe("consumer_missing_handlers", "Handlers that were there before; the place does not move without them.", ofConsumerScope)
	consumerShared = describe("consumer_shared_error", "1 when what the consumer shares with a successor could not be read or written last, 0 when it could; missing if it shares nothing.", ofConsumer)
	consumerAll    = describe("consumer_everything", "1 when handlers have received every object since the start, 0 when they went on.", ofConsumerScope)
)

// Describe implements prometheus.Collector.
func (consumerCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{consumerActive, consumerKeys, consumerBehind, consumerLacks, consumerShared, consumerAll} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c consumerCollector) Collect(ch chan<- prometheus.Metric) {
	for _, consumer := range c {
		s := consumer.Status()
		name := valid(s.Name)
		ch <- gauge(consumerActive, number(s.State == durable.Active), name)
		if s.Term > 0 || s.SharedError != "" {
			ch <- gauge(consumerShared, number(s.SharedError != ""), name)
		}
		for state, n := range map[string]int{
			"waiting": s.Waiting, "in work": s.InWork, "delayed": s.Delayed, "failed": s.Failed, "unresolved": s.Unresolved,
		} {
			ch <- gauge(consumerKeys, float64(n), name, state)
		}
		for _, scope := range s.Scopes {
			id := valid(scope.ID)
			ch <- gauge(consumerBehind, float64(scope.Behind), name, id)
			ch <- gauge(consumerLacks, float64(scope.Missing), name, id)
			ch <- gauge(consumerAll, number(scope.Everything != ""), name, id)
		}
	}
}
