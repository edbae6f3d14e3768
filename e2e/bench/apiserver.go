package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"github.com/informctl/informctl/e2e/controlplane"
)

// apiServer is a running server process for measurements.
type apiServer struct {
	url        string // of this command's server
	kubeconfig string // of a kube-apiserver
	pid        int
	objects    int // of the group's kind, with those that a kube-apiserver makes itself
	// reset advances the resource version by ahead. This command's server restores its
	// first state before that.
	reset func(ctx context.Context, ahead int) error
	stop  func() error // must be called once
}

// startServer starts this command's server. It blocks until the server has encoded the
// group's objects and listens.
func (r *run) startServer(ctx context.Context, g *group) (*apiServer, error) {
	cmd, err := again(ctx, serverRole, serving{Kind: g.Kind.name, Objects: g.Objects})
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := func() error {
		_ = in.Close()
		_ = cmd.Wait()
		return nil
	}
	var answer listening
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&answer); err != nil {
		return nil, errors.Join(err, stop())
	}
	g.served = answer.served
	return &apiServer{
		url: answer.URL, pid: cmd.Process.Pid, objects: g.Objects, stop: stop,
		reset: func(ctx context.Context, ahead int) error {
			_, err := controller{answer.URL}.ask(ctx, "reset", ahead, 0)
			return err
		},
	}, nil
}

// startKube blocks until a kube-apiserver serves the group's objects. Its files are in a
// new directory below r.dir, which stop removes.
func (r *run) startKube(ctx context.Context, g *group) (_ *apiServer, err error) {
	dir, err := os.MkdirTemp(r.dir, "kube-")
	if err != nil {
		return nil, err
	}
	stop := func() error { return os.RemoveAll(dir) }
	defer func() {
		if err != nil {
			err = errors.Join(err, stop())
		}
	}()
	cp, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Log: r.progress})
	if err != nil {
		return nil, err
	}
	stop = func() error { return errors.Join(cp.Stop(), os.RemoveAll(dir)) }
	fmt.Fprintf(r.progress, "creating %d %s\n", g.Objects, g.Kind.name)
	load := controlplane.LoadOptions{Pods: g.Objects, Seed: seed}
	if g.Kind.name != boundKind {
		load = controlplane.LoadOptions{ConfigMaps: g.Objects, Seed: seed}
	}
	if err := controlplane.Load(ctx, cp.Config(), load); err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		return nil, err
	}
	g.Kube = cp.Version()
	var objects int
	if objects, g.served, err = g.Kind.weigh(ctx, cp.Config()); err != nil {
		return nil, err
	}
	return &apiServer{
		kubeconfig: cp.Kubeconfig(), pid: cp.APIServerPID(), objects: objects, stop: stop,
		reset: func(ctx context.Context, ahead int) error {
			// Writes to another resource do not change the measured objects.
			for range ahead {
				other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
				if _, err := client.CoreV1().Secrets(metav1.NamespaceDefault).Create(ctx, other, metav1.CreateOptions{}); err != nil {
					return fmt.Errorf("advance the resource version: %w", err)
				}
			}
			return nil
		},
	}, nil
}

// weigh returns the number and the size of all objects. It reads them, because the API
// server has added fields to what was written.
func (k kind) weigh(ctx context.Context, cfg *rest.Config) (objects int, s served, err error) {
	lw, err := k.listWatch(cfg)
	if err != nil {
		return 0, s, err
	}
	all := pager.New(cache.ToListerWatcherWithContext(lw).ListWithContext)
	err = all.EachListItem(ctx, metav1.ListOptions{}, func(obj kruntime.Object) error {
		objects++
		text, err := compactJSON(obj)
		if err != nil {
			return err
		}
		data, err := k.envelope(obj)
		s.JSONBytes += int64(len(text))
		s.WireBytes += int64(len(data))
		return err
	})
	if err != nil {
		return 0, s, fmt.Errorf("read the %s of the kube-apiserver: %w", k.name, err)
	}
	return objects, s, nil
}
