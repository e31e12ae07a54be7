package activity

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

func asked(name, agent string, groups ...string) *http.Request {
	found := httptest.NewRequest("GET", "/api", nil)
	found.Header.Set("User-Agent", agent)
	return found.WithContext(request.WithUser(found.Context(), &user.DefaultInfo{Name: name, Groups: groups}))
}

func TestOnlyClientsAreActive(t *testing.T) {
	own := rest.DefaultKubernetesUserAgent() + "/deployment-controller"
	for name, test := range map[string]struct {
		request *http.Request
		counts  bool
	}{
		"a user":                            {asked("owner", "kubectl"), true},
		"a program in a pod":                {asked("system:serviceaccount:shop:front", "front"), true},
		"a program in kube-system":          {asked(controllerAccounts+"front", "front"), true},
		"a program with the agent":          {asked("system:serviceaccount:shop:front", own), true},
		"a controller":                      {asked(controllerAccounts+"deployment-controller", own), false},
		"the controllers' common client":    {asked(user.KubeControllerManager, own), false},
		"the API server itself":             {asked(user.APIServerUser, own), false},
		"a probe":                           {asked(user.Anonymous, ""), false},
		"a node":                            {asked("system:node:n-1", "kubelet", user.NodesGroup), false},
		"a machine with a token":            {asked("system:bootstrap:abc", "kubelet", bootstrappers+":x"), false},
		"a user that is named as a node":    {asked("system:node:n-1", "kubectl"), true},
		"the operator":                      {asked("operator", "operator"), false},
		"a request that is no one's":        {httptest.NewRequest("GET", "/api", nil), false},
		"a user that is named as a service": {asked("system:serviceaccount:kube-systems:x", own), true},
	} {
		t.Run(name, func(t *testing.T) {
			tracker := New([]string{"operator"})
			var open int
			handler := tracker.counted(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				open, _ = tracker.State()
			}))
			handler.ServeHTTP(httptest.NewRecorder(), test.request)
			if (open == 1) != test.counts {
				t.Errorf("%d open requests while it is served", open)
			}
			if left, _ := tracker.State(); left != 0 {
				t.Errorf("%d open requests afterwards", left)
			}
		})
	}
}

func TestARequestThatPanicsEnds(t *testing.T) {
	tracker := New(nil)
	handler := tracker.counted(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	func() {
		defer func() { _ = recover() }()
		handler.ServeHTTP(httptest.NewRecorder(), asked("owner", ""))
	}()
	if open, _ := tracker.State(); open != 0 {
		t.Errorf("%d open requests", open)
	}
}

func TestTheWaitEndsWhenNoClientWasActiveForTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := New(nil)
		began := time.Now()
		done := make(chan time.Duration)
		go func() {
			if err := tracker.Wait(t.Context(), time.Minute); err != nil {
				t.Error(err)
			}
			done <- time.Since(began)
		}()
		time.Sleep(30 * time.Second)
		tracker.begin() // a watch
		time.Sleep(5 * time.Minute)
		tracker.begin()
		tracker.end()
		time.Sleep(30 * time.Second)
		tracker.end()
		// The last one ends after 6 minutes.
		if found := <-done; found != 7*time.Minute {
			t.Errorf("it waited for %s", found)
		}
	})
}

func TestTheWaitEndsWithItsContext(t *testing.T) {
	tracker := New(nil)
	tracker.begin()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tracker.Wait(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

func TestTheSocketAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for range 2 { // A second process takes the name of the first.
		listener, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		listener.(*net.UnixListener).SetUnlinkOnClose(false)
		tracker := New(nil)
		tracker.begin()
		next := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		events := func(context.Context, time.Time) (time.Time, error) { return next, nil }
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- tracker.Serve(ctx, listener, events) }()
		if found := ask(t, path, "{}"); found.OpenRequests != 1 || found.NextEvent != "2026-01-02T03:04:05Z" {
			t.Errorf("the answer is %+v", found)
		}
		tracker.end()
		if found := ask(t, path, `{"idleSeconds": 0}`); found.OpenRequests != 0 {
			t.Errorf("the answer is %+v", found)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func ask(t *testing.T, path, question string) answer {
	t.Helper()
	connection, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := connection.Write([]byte(question + "\n")); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(connection).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var found answer
	if err := json.Unmarshal(line, &found); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestTheNextEvent(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC)
	at := func(hour, minute int) time.Time { return time.Date(2026, 3, 1, hour, minute, 0, 0, time.UTC) }
	cronJob := func(schedule, zone string, suspended bool) *batch.CronJob {
		found := &batch.CronJob{ObjectMeta: meta.ObjectMeta{Name: "c", Namespace: "shop"}}
		found.Spec.Schedule, found.Spec.Suspend = schedule, &suspended
		if zone != "" {
			found.Spec.TimeZone = &zone
		}
		return found
	}
	job := func(seconds int64, conditions ...batch.JobCondition) *batch.Job {
		found := &batch.Job{ObjectMeta: meta.ObjectMeta{Name: "j", Namespace: "shop"}}
		started := meta.NewTime(at(12, 0))
		found.Spec.ActiveDeadlineSeconds, found.Status.StartTime = &seconds, &started
		found.Status.Conditions = conditions
		return found
	}
	complete := batch.JobCondition{Type: batch.JobComplete, Status: "True"}
	for name, test := range map[string]struct {
		cronJob *batch.CronJob
		job     *batch.Job
		next    time.Time
	}{
		"none":                     {nil, nil, time.Time{}},
		"a schedule":               {cronJob("0 * * * *", "", false), nil, at(13, 0)},
		"in a zone":                {cronJob("0 15 * * *", "Etc/GMT-2", false), nil, at(13, 0)},
		"suspended":                {cronJob("0 * * * *", "", true), nil, time.Time{}},
		"a day that never is":      {cronJob("0 0 30 2 *", "", false), nil, time.Time{}},
		"no schedule":              {cronJob("now and then", "", false), nil, time.Time{}},
		"a deadline":               {nil, job(3600), at(13, 0)},
		"a deadline long past":     {nil, job(60), time.Time{}},
		"of a Job that is done":    {nil, job(3600, complete), time.Time{}},
		"a deadline without bound": {nil, job(1 << 62), at(12, 0).Add(maxSeconds * time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			var found time.Time
			if test.cronJob != nil {
				found = nextRun(test.cronJob, now)
			} else if test.job != nil {
				found = deadline(test.job, now)
			}
			if !found.Equal(test.next) {
				t.Errorf("the next event is at %s, not %s", found, test.next)
			}
		})
	}
}

func TestAJobThatIsDoneIsDeletedAfterItsTime(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		seconds int32
		end     batch.JobConditionType
		status  core.ConditionStatus
		deletes time.Time
	}{
		"complete":             {3600, batch.JobComplete, core.ConditionTrue, now.Add(30 * time.Minute)},
		"failed":               {3600, batch.JobFailed, core.ConditionTrue, now.Add(30 * time.Minute)},
		"about to be deleted":  {60, batch.JobComplete, core.ConditionTrue, time.Time{}},
		"not done":             {3600, batch.JobComplete, core.ConditionFalse, time.Time{}},
		"suspended, not done":  {3600, batch.JobSuspended, core.ConditionTrue, time.Time{}},
		"the longest time":     {1<<31 - 1, batch.JobComplete, core.ConditionTrue, now.Add(-30*time.Minute + (1<<31-1)*time.Second)},
		"without a time, done": {-1, batch.JobComplete, core.ConditionTrue, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			found := batch.Job{Status: batch.JobStatus{Conditions: []batch.JobCondition{
				{Type: test.end, Status: test.status, LastTransitionTime: meta.NewTime(now.Add(-30 * time.Minute))},
			}}}
			if test.seconds >= 0 {
				found.Spec.TTLSecondsAfterFinished = &test.seconds
			}
			if next := deletion(&found, now); !next.Equal(test.deletes) {
				t.Errorf("it is deleted at %s, not %s", next, test.deletes)
			}
		})
	}
}

// The controller waits after a pod that failed, and no pod shows it.
func TestAJobThatWaitsForItsNextPod(t *testing.T) {
	now, suspended, other := time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC), true, "example.com/jobs"
	ended := []batch.JobCondition{{Type: batch.JobFailed, Status: "True"}}
	for name, test := range map[string]struct {
		job   batch.Job
		waits bool
	}{
		"between two pods": {batch.Job{}, true},
		"with a pod":       {batch.Job{Status: batch.JobStatus{Active: 1}}, false},
		"failed":           {batch.Job{Status: batch.JobStatus{Conditions: ended}}, false},
		"suspended":        {batch.Job{Spec: batch.JobSpec{Suspend: &suspended}}, false},
		"of users":         {batch.Job{Spec: batch.JobSpec{ManagedBy: &other}}, false},
	} {
		if found := nextPod(&test.job, now); found.IsZero() == test.waits {
			t.Errorf("%s: the next pod is at %s", name, found)
		}
	}
}
