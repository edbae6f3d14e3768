package relayclients_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reads are commands whose output has to be that with the server.
var reads = []string{
	"get pods -A",
	"get pods -A --chunk-size=7",
	"get pods -n shop -o wide",
	"get pods -n shop -o yaml",
	"get pods -n shop -o name --show-labels=false",
	"get pods -n shop -l app=web --show-labels",
	"get pods -n shop -l app!=web,app",
	"get pods -A --field-selector spec.nodeName=node-a",
	"get pods -A --field-selector status.phase!=Running,metadata.namespace=shop",
	"get pods -n shop --sort-by .metadata.creationTimestamp",
	"get pod web-0 -n shop -o json",
	"get pod web-0 -n shop -o jsonpath={.status.podIP}",
	"get pod nothing -n shop",
	"get pods -n empty",
	"get pods web-0 nothing -n shop --ignore-not-found",
	"get nothings",
	"get deploy,svc,cm,no -n shop -o wide",
	"get all -n shop",
	"get ns,crds,clusterroles",
	"get widgets -A",
	"get widgets.v1.demo.informctl.dev -A -o json",
	"describe pod web-0 -n shop",
	"describe deployment web -n shop",
	"describe node node-a",
	"describe widgets -A",
	"wait pod/web-0 -n shop --for=condition=Ready --timeout=10s",
	"wait pod/web-0 -n shop --for=jsonpath={.status.phase}=Running --timeout=10s",
	"wait pod/nothing -n shop --for=delete --timeout=10s",
	"wait deploy/web -n shop --for=condition=Available --timeout=10s",
	"rollout status deploy/web -n shop --timeout=10s",
	"explain pods.spec.containers",
	"explain widgets.spec --recursive",
	"events -n shop",
	"events -n shop --for pod/web-0",
	"version",
	"get --raw /api/v1/namespaces/shop/configmaps/settings",
}

// others are commands that are answered in another way than by the server.
var others = map[string]struct {
	code int
	text string
}{
	"auth can-i list pods -n shop":                {0, "yes"},
	"auth can-i watch widgets.demo.informctl.dev": {0, "yes"},
	"auth can-i delete pods":                      {1, "no - informctl serves get, list and watch"},
	"auth can-i get secrets":                      {1, "no - informctl does not hold it"},
	"auth whoami":                                 {0, "informctl"},
	"delete pod web-0 -n shop --wait=false":       {1, "informctl's copy of the objects, which cannot delete"},
	"apply -f testdata/status.yaml":               {1, "informctl's copy of the objects, which cannot patch"},
	"apply --server-side -f testdata/shop.yaml":   {1, "informctl's copy of the objects, which cannot patch"},
	"create configmap new -n shop":                {1, "informctl's copy of the objects, which cannot create"},
	"scale deploy/web -n shop --replicas 3":       {1, "informctl's copy of the objects, which cannot"},
	"exec web-0 -n shop -- true":                  {1, "informctl's copy of the objects, which cannot"},
	"logs web-0 -n shop":                          {1, "informctl's copy of the objects, which cannot get pods/log"},
	"top pod -n shop":                             {1, "Metrics API not available"},
	"api-versions":                                {0, "demo.informctl.dev/v1\n"},
	"get endpoints -A":                            {1, "endpoints is forbidden: informctl does not hold it"},
	"get endpoints nothing -n shop":               {1, "informctl does not hold it"},
	"get secrets -A":                              {1, "the server doesn't have a resource type \"secrets\""},
	"get --raw /api/v1/secrets":                   {1, "secrets is forbidden: informctl does not hold it"},
}

var (
	ages   = regexp.MustCompile(`\b(\d+[ydhms])+\b|<invalid>`)
	spaces = regexp.MustCompile(` +`)
	stale  = regexp.MustCompile(`(?m)^Warning: .*the server was not heard since.*\n`)
)

// plain returns an answer without what the time changes.
func (a answer) plain() answer {
	a.out = spaces.ReplaceAllString(ages.ReplaceAllString(a.out, "AGE"), " ")
	a.errs = stale.ReplaceAllString(a.errs, "")
	return a
}

// each calls do for commands, two at a time.
func each(commands []string, do func(command string)) {
	var running sync.WaitGroup
	next := make(chan string)
	for range 2 {
		running.Go(func() {
			for command := range next {
				do(command)
			}
		})
	}
	for _, command := range commands {
		next <- command
	}
	close(next)
	running.Wait()
}

// testKubectl compares what kubectl says with what it says with the server: while the
// server is there, without it, from a process that has never reached it, and with it
// again.
func testKubectl(w *world) {
	k := w.keep("--exclude", "endpoints")
	k.caughtUp()
	kubeconfig := k.kubeconfig()
	k.await(func() bool { return w.run(kubeconfig, "explain", "widgets").code == 0 }, func() string { return w.run(kubeconfig, "explain", "widgets").errs })
	pods := func() *process {
		return w.start(w.command(kubeconfig, "get", "pods", "-n", shop, "-w", "-L", "changed"))
	}
	watching := pods()
	watching.awaitText("web-1")
	w.label("changing", "first")
	watching.awaitText("first")
	w.waitForDeletion(kubeconfig)

	want := map[string]answer{}
	var mu sync.Mutex
	each(reads, func(command string) {
		a := w.run(w.cp.Kubeconfig(), strings.Fields(command)...).plain()
		mu.Lock()
		defer mu.Unlock()
		want[command] = a
	})
	resources := w.run(w.cp.Kubeconfig(), "api-resources", "--verbs", "list,watch", "-o", "name").out
	// Events are held as those of the core.
	for _, other := range []string{"endpoints\n", "secrets\n", "events.events.k8s.io\n"} {
		resources = strings.Replace(resources, other, "", 1)
	}
	check := func(when string) {
		w.Helper()
		w.home = w.TempDir() // so that the cache is empty
		each(reads, func(command string) {
			if diff := cmp.Diff(want[command], w.run(kubeconfig, strings.Fields(command)...).plain(), cmp.AllowUnexported(answer{})); diff != "" {
				w.Errorf("%s: kubectl %s (-server +informctl):\n%s", when, command, diff)
			}
		})
		each(slices.Sorted(maps.Keys(others)), func(command string) {
			want := others[command]
			a := w.run(kubeconfig, strings.Fields(command)...)
			if a.code != want.code || !strings.Contains(a.out+a.errs, want.text) {
				w.Errorf("%s: kubectl %s: want code %d and %q, got %v", when, command, want.code, want.text, a)
			}
		})
		held := w.run(kubeconfig, "api-resources", "--verbs", "list,watch", "-o", "name").out
		if diff := cmp.Diff(resources, held); diff != "" {
			w.Errorf("%s: kubectl api-resources (-server +informctl):\n%s", when, diff)
		}
	}
	check("up")
	w.stopServer()
	check("down")
	k.process.stop()
	k.begin()
	if got := k.kubeconfig(); got != kubeconfig {
		w.Errorf("the kubeconfig is %s, was %s", got, kubeconfig)
	}
	check("down, and started again")
	w.startServer()
	k.caughtUp()
	// The server makes the schemas of custom resources when it has started.
	k.await(func() bool { return w.run(kubeconfig, "explain", "widgets").code == 0 }, func() string { return w.run(kubeconfig, "explain", "widgets").errs })
	check("up again")
	watching = pods()
	watching.awaitText("web-1")
	w.label("changing", "second")
	watching.awaitText("second")
}

// waitForDeletion has kubectl wait for a deletion.
func (w *world) waitForDeletion(kubeconfig string) {
	w.Helper()
	waiting := w.start(w.command(kubeconfig, "wait", "-n", shop, "pod/victim", "--for=delete", "--timeout=20s", "-v=6"))
	waiting.awaitText("watch=true")
	now := int64(0)
	if err := w.client.CoreV1().Pods(shop).Delete(w.Context(), "victim", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		w.Fatal(err)
	}
	<-waiting.ended
	if waiting.err != nil || !strings.Contains(waiting.output(), "condition met") {
		w.Errorf("kubectl wait: %v: %s", waiting.err, waiting.output())
	}
}
