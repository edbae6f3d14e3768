package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/examples/samplecontroller/v1alpha1"
)

// newInformer has the signature of cache.NewSharedIndexInformer and of
// informer.Factory.NewInformer. The controller does not know which one it uses.
type newInformer func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer

// byGreeter is the index of Deployments by the Greeter that controls them.
const byGreeter = "greeter"

// controller keeps one Deployment for each Greeter.
type controller struct {
	kube        kubernetes.Interface
	client      *v1alpha1.Client
	greeters    cache.SharedIndexInformer
	deployments cache.SharedIndexInformer
	// queue contains the names of Greeters.
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

func newController(
	ctx context.Context, kube kubernetes.Interface, client *v1alpha1.Client, informerFor newInformer, consumer *durable.Consumer,
) (*controller, error) {
	deployments := cache.NewListWatchFromClient(kube.AppsV1().RESTClient(), "deployments", metav1.NamespaceAll, fields.Everything())
	c := &controller{
		kube: kube, client: client,
		greeters:    informerFor(client.ListWatch(), &v1alpha1.Greeter{}, 0, cache.Indexers{}),
		deployments: informerFor(deployments, &appsv1.Deployment{}, 0, cache.Indexers{byGreeter: indexByGreeter}),
		queue:       durable.NewQueue(consumer, workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName](), durable.ObjectNames),
	}
	logger := klog.FromContext(ctx)
	_, err := c.greeters.AddEventHandler(consumer.Handler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.enqueue(logger, obj) },
		UpdateFunc: func(_, obj any) { c.enqueue(logger, obj) },
		DeleteFunc: func(obj any) {
			if name, ok := c.enqueue(logger, obj); ok {
				logger.Info("Greeter was deleted", "greeter", name)
			}
		},
	}))
	if err != nil {
		return nil, fmt.Errorf("watch Greeters: %w", err)
	}
	_, err = c.deployments.AddEventHandler(consumer.Handler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueueOwner,
		UpdateFunc: func(old, obj any) { c.enqueueOwner(old); c.enqueueOwner(obj) },
		DeleteFunc: c.enqueueOwner,
	}))
	if err != nil {
		return nil, fmt.Errorf("watch Deployments: %w", err)
	}
	return c, c.greeters.SetWatchErrorHandlerWithContext(explain)
}

// explain logs what to do about the error that a first start usually runs into.
func explain(ctx context.Context, r *cache.Reflector, err error) {
	if apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Info("The server does not know Greeters, waiting for crd.yaml to be applied")
		return
	}
	cache.DefaultWatchErrorHandler(ctx, r, err)
}

// enqueue accepts a Greeter or its tombstone.
func (c *controller) enqueue(logger klog.Logger, obj any) (cache.ObjectName, bool) {
	name, err := cache.DeletionHandlingObjectToName(obj)
	if err != nil {
		logger.Error(err, "Not a Greeter")
		return name, false
	}
	c.queue.Add(name)
	return name, true
}

// enqueueOwner accepts a Deployment or its tombstone. It enqueues the name of the Greeter
// even if the Greeter may be deleted: its Deployments may be there still.
func (c *controller) enqueueOwner(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	if d, ok := obj.(*appsv1.Deployment); ok {
		if name, controlled := greeterOf(d); controlled {
			c.queue.Add(name)
		}
	}
}

// greeterOf returns the name of the Greeter that controls a Deployment.
func greeterOf(d *appsv1.Deployment) (cache.ObjectName, bool) {
	ref := metav1.GetControllerOf(d)
	if ref == nil || schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind() != v1alpha1.GreeterKind.GroupKind() {
		return cache.ObjectName{}, false
	}
	return cache.NewObjectName(d.Namespace, ref.Name), true
}

func indexByGreeter(obj any) ([]string, error) {
	d, ok := obj.(*appsv1.Deployment)
	if !ok {
		return nil, fmt.Errorf("index by Greeter: no Deployment but a %T", obj)
	}
	if name, controlled := greeterOf(d); controlled {
		return []string{name.String()}, nil
	}
	return nil, nil
}

// run blocks until ctx ends and everything that it started has ended.
func (c *controller) run(ctx context.Context, workers int) {
	logger := klog.FromContext(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer c.queue.ShutDown()
	running.Go(func() { c.greeters.RunWithContext(ctx) })
	running.Go(func() { c.deployments.RunWithContext(ctx) })
	if !cache.WaitFor(ctx, "caches", c.greeters.HasSyncedChecker(), c.deployments.HasSyncedChecker()) {
		return
	}
	logger.Info("Caught up, starting workers", "workers", workers)
	for range workers {
		running.Go(func() {
			for c.workOne(ctx) {
			}
		})
	}
	<-ctx.Done()
	logger.Info("Stopping")
}

// workOne processes one name from the queue. It blocks until there is one and returns
// false if the queue was shut down.
func (c *controller) workOne(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	err := c.sync(ctx, name)
	switch {
	case err == nil:
		c.queue.Forget(name)
		return true
	case ctx.Err() != nil: // it is not forgotten: the next process does it
		return true
	}
	// A conflict is not logged: it only means that a cache is behind the server.
	if !apierrors.IsConflict(err) {
		klog.FromContext(ctx).Info("Trying again", "greeter", name, "because", err.Error())
	}
	c.queue.AddRateLimited(name)
	return true
}

// sync makes the cluster match the Greeter with that name, whatever event has triggered
// it. It writes only differences, so a Greeter that has not changed costs no request.
func (c *controller) sync(ctx context.Context, name cache.ObjectName) error {
	greeter, err := c.cached(name)
	if err != nil {
		return err
	}
	removed, err := c.removeStrays(ctx, name, greeter)
	if err != nil || removed {
		return err // the deletion of a Deployment triggers the name again
	}
	if greeter == nil || greeter.DeletionTimestamp != nil {
		return nil
	}
	deployment, err := c.apply(ctx, greeter)
	if err != nil && !errors.Is(err, errTaken) {
		return err
	}
	return errors.Join(err, c.report(ctx, greeter, deployment, err))
}

// cached returns nil if there is no Greeter with that name. Objects of a cache must not
// be changed.
func (c *controller) cached(name cache.ObjectName) (*v1alpha1.Greeter, error) {
	obj, exists, err := c.greeters.GetIndexer().GetByKey(name.String())
	if err != nil || !exists {
		return nil, err
	}
	greeter, ok := obj.(*v1alpha1.Greeter)
	if !ok {
		return nil, fmt.Errorf("no Greeter but a %T", obj)
	}
	return greeter, nil
}

// removeStrays deletes Deployments of a Greeter with that name that the Greeter does not
// want: it was deleted or replaced by another one, or it names another Deployment. The
// cluster's garbage collector would handle only the first two cases.
func (c *controller) removeStrays(ctx context.Context, name cache.ObjectName, greeter *v1alpha1.Greeter) (removed bool, err error) {
	children, err := c.deployments.GetIndexer().ByIndex(byGreeter, name.String())
	if err != nil {
		return false, err
	}
	for _, child := range children {
		d, ok := child.(*appsv1.Deployment)
		if !ok || d.DeletionTimestamp != nil || wants(greeter, d) {
			continue
		}
		// The two caches may be from different moments, and a deletion cannot be undone.
		live, err := c.client.Get(ctx, name.Namespace, name.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return removed, fmt.Errorf("ask for the Greeter: %w", err)
		}
		if err == nil && wants(live, d) {
			continue
		}
		err = c.kube.AppsV1().Deployments(d.Namespace).Delete(ctx, d.Name, metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(d.UID)),
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return removed, fmt.Errorf("delete the Deployment %s: %w", d.Name, err)
		}
		removed = true
		klog.FromContext(ctx).Info("Deleted a Deployment that nobody wants", "greeter", name, "deployment", d.Name)
	}
	return removed, nil
}

func wants(greeter *v1alpha1.Greeter, d *appsv1.Deployment) bool {
	return greeter != nil && metav1.IsControlledBy(d, greeter) && d.Name == greeter.Spec.DeploymentName
}

// errTaken indicates that another owner controls the Deployment with the wanted name.
var errTaken = errors.New("the Deployment is not controlled by this Greeter")

// apply creates the Greeter's Deployment, or changes it if it differs, and returns it.
func (c *controller) apply(ctx context.Context, greeter *v1alpha1.Greeter) (*appsv1.Deployment, error) {
	name := greeter.Spec.DeploymentName
	deployments := c.kube.AppsV1().Deployments(greeter.Namespace)
	existing, err := appslisters.NewDeploymentLister(c.deployments.GetIndexer()).Deployments(greeter.Namespace).Get(name)
	if apierrors.IsNotFound(err) {
		created, err := deployments.Create(ctx, newDeployment(greeter), metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return created, err
		}
		// The cache does not have it yet.
		existing, err = deployments.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	if !metav1.IsControlledBy(existing, greeter) {
		return nil, fmt.Errorf("%s: %w", name, errTaken)
	}
	if existing.Spec.Replicas != nil && *existing.Spec.Replicas == greeter.Spec.Replicas {
		return existing, nil
	}
	changed := existing.DeepCopy()
	changed.Spec.Replicas = new(greeter.Spec.Replicas)
	return deployments.Update(ctx, changed, metav1.UpdateOptions{})
}

func newDeployment(greeter *v1alpha1.Greeter) *appsv1.Deployment {
	labels := map[string]string{"app": "greeter", "greeter": greeter.Spec.DeploymentName}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       greeter.Namespace,
			Name:            greeter.Spec.DeploymentName,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(greeter, v1alpha1.GreeterKind)},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(greeter.Spec.Replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "greeter", Image: "busybox:1.37",
					Command: []string{"sh", "-c", "while :; do echo hello; sleep 60; done"},
				}}},
			},
		},
	}
}

// report writes the Greeter's status if it differs. refused is the reason why there is no
// Deployment.
func (c *controller) report(ctx context.Context, greeter *v1alpha1.Greeter, deployment *appsv1.Deployment, refused error) error {
	changed := greeter.DeepCopy()
	applied := metav1.Condition{
		Type: v1alpha1.Applied, Status: metav1.ConditionTrue, Reason: "AsWanted",
		ObservedGeneration: greeter.Generation,
	}
	if refused != nil {
		applied.Status, applied.Reason, applied.Message = metav1.ConditionFalse, "NameTaken", refused.Error()
		changed.Status.AvailableReplicas = 0
	} else {
		changed.Status.AvailableReplicas = deployment.Status.AvailableReplicas
	}
	meta.SetStatusCondition(&changed.Status.Conditions, applied)
	if equality.Semantic.DeepEqual(greeter.Status, changed.Status) {
		return nil
	}
	_, err := c.client.UpdateStatus(ctx, changed)
	return err
}
