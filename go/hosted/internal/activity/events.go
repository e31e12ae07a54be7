package activity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// The API server keeps no more than one page of objects in memory.
const pageSize = 500

// NextEvent returns when a controller acts next because of the time alone: the next time of a CronJob, the end of the
// time that a Job has, the next pod of a Job after one that failed, or the deletion of one that is done; zero if there is
// none.
func NextEvent(ctx context.Context, client kubernetes.Interface, now time.Time) (time.Time, error) {
	var next time.Time
	earlier := func(found time.Time) {
		if !found.IsZero() && (next.IsZero() || found.Before(next)) {
			next = found
		}
	}
	options := meta.ListOptions{Limit: pageSize}
	for {
		page, err := client.BatchV1().CronJobs("").List(ctx, options)
		if err != nil {
			return next, fmt.Errorf("list of CronJobs: %w", err)
		}
		for index := range page.Items {
			earlier(nextRun(&page.Items[index], now))
		}
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
	}
	for {
		page, err := client.BatchV1().Jobs("").List(ctx, options)
		if err != nil {
			return next, fmt.Errorf("list of Jobs: %w", err)
		}
		for index := range page.Items {
			earlier(deadline(&page.Items[index], now))
			earlier(nextPod(&page.Items[index], now))
			earlier(deletion(&page.Items[index], now))
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return next, nil
		}
	}
}

// nextRun returns the next time of a CronJob, read as its controller does; zero if it has none.
func nextRun(found *batch.CronJob, now time.Time) time.Time {
	if found.DeletionTimestamp != nil || (found.Spec.Suspend != nil && *found.Spec.Suspend) {
		return time.Time{}
	}
	text := found.Spec.Schedule
	if zone := found.Spec.TimeZone; zone != nil && !strings.Contains(text, "TZ") {
		if _, err := time.LoadLocation(*zone); err == nil {
			text = fmt.Sprintf("TZ=%s %s", *zone, text)
		}
	}
	schedule, err := cron.ParseStandard(text)
	if err != nil {
		// Its controller does not run it either.
		return time.Time{}
	}
	return schedule.Next(now)
}

// nextPod returns when to expect the next pod of a Job that is not done and has none; zero if it needs none. Its
// controller waits after a failure, for 10 minutes at most, but the Job does not say until when.
func nextPod(found *batch.Job, now time.Time) time.Time {
	isSuspended := found.Spec.Suspend != nil && *found.Spec.Suspend
	// Programs of users keep the process awake themselves.
	isOthers := found.Spec.ManagedBy != nil && *found.Spec.ManagedBy != batch.JobControllerName
	if isSuspended || isOthers || found.DeletionTimestamp != nil || found.Status.Active > 0 || isDone(found) {
		return time.Time{}
	}
	return now.Add(retrySeconds * time.Second)
}

func isDone(found *batch.Job) bool {
	return slices.ContainsFunc(found.Status.Conditions, isEnd)
}

func isEnd(each batch.JobCondition) bool {
	return (each.Type == batch.JobComplete || each.Type == batch.JobFailed) && each.Status == core.ConditionTrue
}

const retrySeconds = 60

// deadline returns when the controller ends the pods of a Job; zero if it never does, or has done so.
func deadline(found *batch.Job, now time.Time) time.Time {
	seconds, started := found.Spec.ActiveDeadlineSeconds, found.Status.StartTime
	if found.DeletionTimestamp != nil || seconds == nil || started == nil || isDone(found) {
		return time.Time{}
	}
	ends := started.Add(time.Duration(min(*seconds, maxSeconds)) * time.Second)
	if ends.Before(now) {
		return time.Time{}
	}
	return ends
}

// deletion returns when the controller deletes a Job that is done; zero if it never does, or is about to.
func deletion(found *batch.Job, now time.Time) time.Time {
	seconds := found.Spec.TTLSecondsAfterFinished
	if found.DeletionTimestamp != nil || seconds == nil {
		return time.Time{}
	}
	for _, each := range found.Status.Conditions {
		if isEnd(each) && !each.LastTransitionTime.IsZero() {
			if ends := each.LastTransitionTime.Add(time.Duration(*seconds) * time.Second); ends.After(now) {
				return ends
			}
		}
	}
	return time.Time{}
}

// More would not be a duration.
const maxSeconds = 1 << 32
