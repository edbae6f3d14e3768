package run

import (
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/store"
)

// outages logs once for all followers that the server, or an API that another server
// answers for it, cannot be reached, and once that it is reached again. The zero value
// logs nothing. It may be used by several goroutines.
type outages struct {
	logger logr.Logger
	server string // its address

	mu  sync.Mutex         // protects the field below
	are map[string]*outage // by API group and version; "" is the server
}

// outage lasts until each follower that it has met has an answer, or has ended.
type outage struct {
	since time.Time
	met   map[*follower]bool
	told  bool
}

// begin notes that a follower has no answer.
func (o *outages) begin(f *follower, err error) {
	api := apiOf(f.Scope, err)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.are == nil {
		o.are = map[string]*outage{}
	}
	is := o.are[api]
	if is == nil {
		is = &outage{since: time.Now(), met: map[*follower]bool{}}
		o.are[api] = is
	}
	is.met[f] = true
	if is.told || api != "" && o.are[""] != nil {
		return
	}
	is.told = true
	if api == "" {
		cmdutil.Warnings(o.logger).Info("Server cannot be reached, trying again", "server", o.server, "because", cmdutil.OneLine(err))
	} else {
		cmdutil.Warnings(o.logger).Info("An API cannot be reached, trying again", "api", api, "because", cmdutil.OneLine(err))
	}
}

// end notes that a follower has an answer or, unless answered is set, has ended.
func (o *outages) end(f *follower, answered bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for api, is := range o.are {
		if delete(is.met, f); len(is.met) > 0 {
			continue
		}
		delete(o.are, api)
		switch after := time.Since(is.since).Round(time.Second); {
		case !answered || !is.told:
		case api == "":
			cmdutil.Warnings(o.logger).Info("Server is reached again", "server", o.server, "after", after)
		default:
			cmdutil.Warnings(o.logger).Info("An API is reached again", "api", api, "after", after)
		}
	}
}

// apiOf returns the API group and version that cannot be reached, "" if it is the server:
// it does not answer, or not for a type that it serves itself.
func apiOf(scope store.Scope, err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || scope.Form == store.Typed {
		return ""
	}
	return scope.Kind.GroupVersion().String()
}
