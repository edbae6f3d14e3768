package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2/textlogger"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store/bolt"
)

// measure follows all kinds until they have synced, and prints the figures.
func (t task) measure(ctx context.Context) (err error) {
	log.SetLogger(logger())
	cfg := &rest.Config{Host: t.URL, QPS: -1}
	if t.QPS > 0 {
		// Of the whole process: controller-runtime makes a client for each kind.
		cfg.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(t.QPS, 10)
	}
	var requests atomic.Int64
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return counted(func(r *http.Request) (*http.Response, error) {
			requests.Add(1)
			return next.RoundTrip(r)
		})
	})
	opts := crcache.Options{Mapper: mapper(t.Kinds)}
	began := time.Now()
	if t.File != "" {
		db, failed := bolt.Open(t.File, bolt.Options{})
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		f, err := informer.NewFactory(db, cfg, informer.FactoryOptions{})
		if err != nil {
			return err
		}
		opts.NewInformer = f.NewInformer
	}
	c, err := crcache.New(cfg, opts)
	if err != nil {
		return err
	}
	for i := range t.Kinds {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kindOf(i))
		if _, err := c.GetInformer(ctx, u, crcache.BlockUntilSynced(false)); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	if !c.WaitForCacheSync(ctx) {
		return errors.New("the caches have not synced")
	}
	f := figures{Synced: time.Since(began).Seconds(), CPU: cpu()}
	time.Sleep(t.Quiet)
	debug.FreeOSMemory()
	if f.RSS, err = anonymous(); err != nil {
		return err
	}
	f.Goroutines, f.Requests = runtime.NumGoroutine(), requests.Load()
	return json.NewEncoder(os.Stdout).Encode(f)
}

// counted is a RoundTripper.
type counted func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (c counted) RoundTrip(r *http.Request) (*http.Response, error) { return c(r) }

func logger() logr.Logger { return textlogger.NewLogger(textlogger.NewConfig()) }

func mapper(kinds int) meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{kindOf(0).GroupVersion()})
	for i := range kinds {
		m.AddSpecific(kindOf(i), resourceOf(i), resourceOf(i), meta.RESTScopeNamespace)
	}
	return m
}

// cpu returns the processor time of this process, in seconds.
func cpu() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// anonymous returns the anonymous memory of this process, in bytes.
func anonymous() (n int64, err error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, line, _ := strings.Cut(string(b), "RssAnon:")
	_, err = fmt.Sscan(line, &n)
	return n << 10, err
}
