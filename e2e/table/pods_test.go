package table_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/informctl/informctl/table"
)

var (
	seed = flag.Uint64("seed", 1, "which random pods")
	many = flag.Int("pods", 500, "how many random pods")
)

// TestRandomPods compares the tables of pods whose containers are in random states: their
// status is what has most cases.
func TestRandomPods(t *testing.T) {
	w := newWorld(t)
	t.Logf("-seed %d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 0))
	for i := range *many {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(randomPod(rng, i))
		if err != nil {
			t.Fatal(err)
		}
		w.create(&unstructured.Unstructured{Object: content})
	}
	pod := corev1.SchemeGroupVersion.WithKind("Pod")
	k, _ := table.Of(pod)
	w.compare(corev1.SchemeGroupVersion.WithResource("pods"), k)
}

// pick returns one of the values.
func pick[T any](rng *rand.Rand, values ...T) T { return values[rng.IntN(len(values))] }

func randomPod(rng *rand.Rand, i int) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i)},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways},
		Status: corev1.PodStatus{
			Phase:  pick(rng, corev1.PodPending, corev1.PodRunning, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown),
			Reason: pick(rng, "", "", "", "", "NodeLost", "Evicted", "Completed"),
		},
	}
	if rng.IntN(4) == 0 {
		p.Finalizers, p.Annotations = []string{"test/keep"}, map[string]string{deletedAnnotation: "true"}
	}
	for n := range rng.IntN(4) {
		c := corev1.Container{Name: fmt.Sprintf("init-%d", n), Image: "i"}
		if rng.IntN(2) == 0 {
			c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		if rng.IntN(8) > 0 {
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, randomStatus(rng, c.Name))
		}
	}
	for n := range 1 + rng.IntN(3) {
		c := corev1.Container{Name: fmt.Sprintf("main-%d", n), Image: "i"}
		p.Spec.Containers = append(p.Spec.Containers, c)
		if rng.IntN(8) > 0 {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, randomStatus(rng, c.Name))
		}
	}
	for _, condition := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.PodScheduled} {
		if rng.IntN(2) == 0 {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
				Type: condition, Status: pick(rng, corev1.ConditionTrue, corev1.ConditionFalse),
				Reason: pick(rng, "", "", corev1.PodReasonSchedulingGated, corev1.PodReasonUnschedulable),
			})
		}
	}
	return p
}

func randomStatus(rng *rand.Rand, name string) corev1.ContainerStatus {
	s := corev1.ContainerStatus{
		Name: name, Image: "i", ImageID: "i", Ready: rng.IntN(2) == 0, RestartCount: int32(rng.IntN(3)),
		State: randomState(rng), Started: pick(rng, nil, ptr.To(true), ptr.To(false)),
	}
	if rng.IntN(2) == 0 {
		s.LastTerminationState.Terminated = randomTermination(rng)
	}
	return s
}

func randomState(rng *rand.Rand) corev1.ContainerState {
	switch rng.IntN(6) {
	case 0:
		return corev1.ContainerState{}
	case 1:
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: pick(rng, "", "PodInitializing", "CrashLoopBackOff", "ErrImagePull"),
		}}
	case 2, 3:
		return corev1.ContainerState{Terminated: randomTermination(rng)}
	}
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

func randomTermination(rng *rand.Rand) *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{
		ExitCode: int32(rng.IntN(3)), Signal: int32(pick(rng, 0, 0, 9)), Reason: pick(rng, "", "", "Completed", "Error"),
	}
	if rng.IntN(4) > 0 {
		t.FinishedAt = metav1.NewTime(time.Date(2026, 1, 1+rng.IntN(200), rng.IntN(24), 0, 0, 0, time.UTC))
	}
	return t
}
