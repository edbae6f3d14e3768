package controlplane

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/informctl/informctl/internal/testobjects"
)

// writers is the number of objects that are written concurrently.
const writers = 32

// LoadOptions specify the objects that Load creates.
type LoadOptions struct {
	// First is the number of the first object of each kind, 0 by default.
	First int
	// Pods, ConfigMaps and Widgets are the numbers of objects to create.
	Pods       int
	ConfigMaps int
	Widgets    int
	// Seed is passed to package testobjects.
	Seed int64
}

// Load creates the namespaces, pods, config maps and widgets of package testobjects, and
// the CRD of the widgets if there are any. Pods and widgets get their statuses in a
// second request. The pods, config maps and widgets must not exist yet; the namespaces
// and the CRD may. Load blocks until all objects are written, ctx ends or a write fails.
func Load(ctx context.Context, cfg *rest.Config, opts LoadOptions) error {
	protobuf := rest.CopyConfig(cfg)
	protobuf.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(protobuf)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	custom, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if err := createNamespaces(ctx, client); err != nil {
		return err
	}
	if opts.Widgets > 0 {
		if err := createCRD(ctx, custom); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for i := opts.First; i < opts.First+opts.Pods && ctx.Err() == nil; i++ {
		g.Go(func() error { return createPod(ctx, client, testobjects.Pod(i, opts.Seed)) })
	}
	for i := opts.First; i < opts.First+opts.ConfigMaps && ctx.Err() == nil; i++ {
		g.Go(func() error { return createConfigMap(ctx, client, testobjects.ConfigMap(i, opts.Seed)) })
	}
	for i := opts.First; i < opts.First+opts.Widgets && ctx.Err() == nil; i++ {
		g.Go(func() error { return createWidget(ctx, custom, i, opts.Seed) })
	}
	return g.Wait()
}

func createNamespaces(ctx context.Context, client kubernetes.Interface) error {
	for _, name := range testobjects.NamespaceNames() {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create namespace %s: %w", name, err)
		}
	}
	return nil
}

// createCRD blocks until the server serves widgets.
func createCRD(ctx context.Context, client dynamic.Interface) error {
	crd := testobjects.WidgetCRD()
	_, err := client.Resource(testobjects.CRDResource).Create(ctx, crd, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create CRD %s: %w", crd.GetName(), err)
	}
	err = wait.PollUntilContextTimeout(ctx, pollInterval, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := client.Resource(testobjects.WidgetResource).List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("wait for CRD %s: %w", crd.GetName(), err)
	}
	return nil
}

// createPod writes spec and status with the field managers that usually write them, which
// results in the usual managed fields.
func createPod(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	testobjects.ClearServerFields(pod)
	pods := client.CoreV1().Pods(pod.Namespace)
	created, err := pods.Create(ctx, pod, metav1.CreateOptions{FieldManager: "kube-controller-manager"})
	if err != nil {
		return fmt.Errorf("create pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	created.Status = pod.Status
	if _, err := pods.UpdateStatus(ctx, created, metav1.UpdateOptions{FieldManager: "kubelet"}); err != nil {
		return fmt.Errorf("write status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func createConfigMap(ctx context.Context, client kubernetes.Interface, cm *corev1.ConfigMap) error {
	testobjects.ClearServerFields(cm)
	if _, err := client.CoreV1().ConfigMaps(cm.Namespace).Create(ctx, cm, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create config map %s/%s: %w", cm.Namespace, cm.Name, err)
	}
	return nil
}

func createWidget(ctx context.Context, client dynamic.Interface, i int, seed int64) error {
	widget := testobjects.Widget(i, seed)
	testobjects.ClearServerFields(widget)
	widgets := client.Resource(testobjects.WidgetResource).Namespace(widget.GetNamespace())
	created, err := widgets.Create(ctx, widget, metav1.CreateOptions{FieldManager: "kubectl-create"})
	if err != nil {
		return fmt.Errorf("create widget %s/%s: %w", widget.GetNamespace(), widget.GetName(), err)
	}
	created.Object["status"] = widget.Object["status"]
	if _, err := widgets.UpdateStatus(ctx, created, metav1.UpdateOptions{FieldManager: "widget-controller"}); err != nil {
		return fmt.Errorf("write status of widget %s/%s: %w", widget.GetNamespace(), widget.GetName(), err)
	}
	return nil
}
