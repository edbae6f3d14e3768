package informer

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer/internal/delivery"
)

// handlers are the methods of Informer that concern event handlers.
type handlers struct {
	hub    *delivery.Hub // brings changes to handlers
	resync time.Duration // of handlers that specify none
}

// AddEventHandler implements cache.SharedInformer.
func (inf *handlers) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return inf.AddEventHandlerWithOptions(h, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (inf *handlers) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, resyncPeriod time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return inf.AddEventHandlerWithOptions(h, cache.HandlerOptions{ResyncPeriod: &resyncPeriod})
}

// AddEventHandlerWithOptions implements cache.SharedInformer. It never waits for the
// stored objects: a cursor delivers them to the handler.
func (inf *handlers) AddEventHandlerWithOptions(eh cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	if isNil(eh) {
		return nil, errors.New("informer: event handler is nil")
	}
	period := inf.resync
	if options.ResyncPeriod != nil {
		period = *options.ResyncPeriod
	}
	r := inf.hub.Add(eh, delivery.Options{Resync: period, Logger: options.Logger})
	if r == nil {
		return nil, fmt.Errorf("informer: handler of type %T was not added to shared informer because it has stopped already", eh)
	}
	return r, nil
}

// RemoveEventHandler implements cache.SharedInformer. It does not wait for a call of the
// handler that is in progress; cache.ShutDownEventHandler does. Removing a handler twice,
// or a handler of another informer, does nothing.
func (inf *handlers) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	r, ok := handle.(*delivery.Registration)
	if !ok {
		return fmt.Errorf("informer: a %T is no handle of this informer", handle)
	}
	inf.hub.Remove(r)
	return nil
}
