package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/internal/testobjects"
)

// The numbers of pods that are created, changed and deleted while informctl is down.
const (
	created = 30
	changed = 50
	deleted = 20

	leastPods = changed + deleted
	seed      = 1
)

var podResource = corev1.SchemeGroupVersion.WithResource("pods")

// changePods creates, changes and deletes pods. The changed and deleted pods are spread
// over all of the first pods.
func changePods(ctx context.Context, cfg *rest.Config, pods int) error {
	err := controlplane.Load(ctx, cfg, controlplane.LoadOptions{First: pods, Pods: created, Seed: seed})
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	patch := []byte(`{"metadata":{"annotations":{"demo.informctl.dev/changed":"while informctl was down"}}}`)
	// No kubelet runs that would complete a graceful deletion.
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	const every = (changed + deleted) / deleted
	for n, deletions := 0, 0; n < changed+deleted; n++ {
		namespace, name := testobjects.PodKey(n * (pods / leastPods))
		r := client.Resource(podResource).Namespace(namespace)
		if n%every == 0 && deletions < deleted {
			deletions++
			if err := r.Delete(ctx, name, now); err != nil {
				return fmt.Errorf("delete pod %s/%s: %w", namespace, name, err)
			}
			continue
		}
		if _, err := r.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("change pod %s/%s: %w", namespace, name, err)
		}
	}
	return nil
}
