package table

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

var job = kindOf(jobCells,
	always("Name", "Status", "Completions", "Duration", "Age"),
	wide("Containers", "Images", "Selector"))

func jobCells(j *batchv1.Job, now time.Time) []any {
	names, images := containers(j.Spec.Template.Spec.Containers)
	return []any{
		j.Name, jobStatus(j), jobCompletions(j), jobDuration(j, now), age(j.CreationTimestamp, now),
		names, images, selector(j.Spec.Selector),
	}
}

// jobStatus returns the condition that says most: the order is that of the job's end.
func jobStatus(j *batchv1.Job) string {
	switch {
	case isJob(j, batchv1.JobComplete):
		return "Complete"
	case isJob(j, batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case isJob(j, batchv1.JobSuspended):
		return "Suspended"
	case isJob(j, batchv1.JobFailureTarget):
		return "FailureTarget"
	case isJob(j, batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

// isJob reports whether a condition of a job is true.
func isJob(j *batchv1.Job, condition batchv1.JobConditionType) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue
	})
}

func jobCompletions(j *batchv1.Job) string {
	switch {
	case j.Spec.Completions != nil:
		return fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	case pointed(j.Spec.Parallelism, 0) > 1:
		return fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, *j.Spec.Parallelism)
	}
	return fmt.Sprintf("%d/1", j.Status.Succeeded)
}

func jobDuration(j *batchv1.Job, now time.Time) string {
	if j.Status.StartTime == nil {
		return ""
	}
	end := metav1.NewTime(now)
	if j.Status.CompletionTime != nil {
		end = *j.Status.CompletionTime
	}
	return duration.HumanDuration(end.Sub(j.Status.StartTime.Time))
}

var cronJob = kindOf(cronJobCells,
	always("Name", "Schedule", "Timezone"), ofType("boolean", always("Suspend")), ofType("integer", always("Active")),
	always("Last Schedule", "Age"),
	wide("Containers", "Images", "Selector"))

func cronJobCells(c *batchv1.CronJob, now time.Time) []any {
	template := c.Spec.JobTemplate.Spec
	names, images := containers(template.Template.Spec.Containers)
	suspend := "<unset>"
	if s := c.Spec.Suspend; s != nil {
		suspend = "False"
		if *s {
			suspend = "True"
		}
	}
	last := none
	if t := c.Status.LastScheduleTime; t != nil {
		last = age(*t, now)
	}
	return []any{
		c.Name, c.Spec.Schedule, pointed(c.Spec.TimeZone, none), suspend, int64(len(c.Status.Active)), last,
		age(c.CreationTimestamp, now), names, images, selector(template.Selector),
	}
}
