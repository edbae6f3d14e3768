package durable

import (
	"context"
	"slices"
	"time"
)

// commitFirst waits until what the handlers have received is written, and then their
// place and the queue. While nothing can be written, it waits for a moment only: each key
// would wait in vain.
func (c *Consumer) commitFirst() {
	c.mu.Lock()
	patience, isFirst := closePatience, c.unwritten.IsZero()
	if !isFirst {
		patience = failedPatience
		if time.Since(c.unwritten) >= retryInterval {
			patience = retryPatience
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var feeds []*member
	for _, s := range c.scopes {
		if i := slices.IndexFunc(s.members, func(m *member) bool { return !m.feed.Ended() }); i >= 0 {
			feeds = append(feeds, s.members[i])
		}
	}
	c.mu.Unlock()
	var err error
	for _, m := range feeds {
		// If ctx has not ended, changes were lost with the file. Nothing writes them any
		// more: the key is what is left of them.
		if flushErr := m.feed.Flush(ctx); flushErr != nil && ctx.Err() != nil {
			err = flushErr
			break
		}
	}
	if err == nil {
		err = c.commit(ctx)
	}
	if err != nil && isFirst {
		c.log().Error(err, "Work begins before what led to it is written")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.unwritten = time.Time{}
	case patience != failedPatience:
		c.unwritten = time.Now()
	}
}
