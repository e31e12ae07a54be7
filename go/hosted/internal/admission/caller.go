package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/klog/v2"

	"tenantry.dev/hosted/internal/sockets"
)

const (
	// The limit for one object in a datastore is 1.5 MiB.
	largestBody = 2 << 20
	// How many requests the process gets at one time; more wait.
	mostCalls   = 32
	callTimeout = 10 * time.Second
	// Advice is worth little waiting.
	mostAdvice    = 4
	adviceTimeout = time.Second
	retrySeconds  = 2
)

// question is what the process gets.
type question struct {
	Operation string `json:"operation"`
	Group     string `json:"group"`
	Version   string `json:"version"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	User      string `json:"user"`
	// DryRun forbids side effects: the object is not stored.
	DryRun    bool           `json:"dryRun"`
	Object    runtime.Object `json:"object"`
	OldObject runtime.Object `json:"oldObject,omitempty"`
}

// answer has one of the three.
type answer struct {
	// Object is what the API server shall store.
	Object json.RawMessage `json:"object"`
	// Status is the refusal, which the client gets as it is.
	Status *metav1.Status `json:"status"`
	// Warnings are what the client is told; of requests that are served anyway.
	Warnings []string `json:"warnings"`
}

type caller struct {
	transport http.RoundTripper
	slots     chan struct{}
	timeout   time.Duration
}

func newCaller(dial sockets.Dial, most int, timeout time.Duration) *caller {
	return &caller{
		transport: &http.Transport{
			DialContext: dial,
			// A later process replaces the socket, and an open connection would lead to the former one.
			DisableKeepAlives: true,
		},
		slots:   make(chan struct{}, most),
		timeout: timeout,
	}
}

// advice returns the warnings of the process; without an answer in time there are none.
func (c *caller) advice(ctx context.Context, asked question) []string {
	body, err := json.Marshal(asked)
	if err != nil || len(body) > largestBody {
		return nil
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	default:
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var found answer
	content, err := c.post(ctx, body)
	if err == nil {
		err = json.Unmarshal(content, &found)
	}
	if err != nil {
		klog.V(2).InfoS("The admission step has no advice", "resource", asked.Resource, "err", err)
		return nil
	}
	return found.Warnings
}

// call returns the answer of the process, which has an object; a refusal is an error.
func (c *caller) call(ctx context.Context, asked question) (answer, error) {
	var found answer
	body, err := json.Marshal(asked)
	if err != nil {
		return found, apierrors.NewInternalError(err)
	}
	if len(body) > largestBody {
		return found, apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("the object has %d bytes, and the admission of %s takes at most %d",
				len(body), asked.Resource, largestBody))
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return found, unavailable(asked)
	}
	content, err := c.post(ctx, body)
	if err != nil {
		// The error names the socket, which is no matter of the client.
		klog.ErrorS(err, "The admission step has no answer", "resource", asked.Resource)
		if errors.Is(err, errBroken) {
			return found, broken()
		}
		return found, unavailable(asked)
	}
	if err := json.Unmarshal(content, &found); err != nil {
		klog.ErrorS(err, "The answer of the admission step cannot be read", "resource", asked.Resource)
		return found, broken()
	}
	if found.Status != nil {
		return found, refusal(found.Status)
	}
	if len(found.Object) == 0 {
		return found, broken()
	}
	return found, nil
}

// errBroken is the error of a process that answers with something else than an answer.
var errBroken = errors.New("unexpected response")

func (c *caller) post(ctx context.Context, body []byte) ([]byte, error) {
	// The host is not used: the socket is the address.
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://admission/", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	// The transport and not a client: redirects are not followed.
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: HTTP status %d", errBroken, response.StatusCode)
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, largestBody+1))
	if err == nil && len(content) > largestBody {
		err = fmt.Errorf("%w: more than %d bytes", errBroken, largestBody)
	}
	return content, err
}

// refusal returns the error for a Status; one that reports no failure must not admit the request.
func refusal(status *metav1.Status) error {
	if status.Code < http.StatusBadRequest || status.Code > 599 {
		klog.ErrorS(nil, "The admission step refuses without an error code", "code", status.Code)
		return broken()
	}
	status.Status = metav1.StatusFailure
	return &apierrors.StatusError{ErrStatus: *status}
}

func unavailable(asked question) error {
	what := strings.ToLower(asked.Operation)
	found := apierrors.NewServiceUnavailable(fmt.Sprintf(
		"this control plane cannot %s %s at the moment, because the cluster that hosts it does not answer: "+
			"try again, and ask its administrators if this lasts", what, asked.Resource))
	found.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retrySeconds}
	return found
}

func broken() error {
	return apierrors.NewInternalError(errors.New(
		"the admission step of the cluster that hosts this control plane has failed: ask its administrators"))
}

// replace changes the object of a request into the answer, which must be of the same name and kind.
func replace(given admission.Attributes, answered answer, o admission.ObjectInterfaces) error {
	kind := given.GetKind()
	var object runtime.Object = &unstructured.Unstructured{}
	if _, custom := given.GetObject().(*unstructured.Unstructured); !custom {
		var err error
		if object, err = o.GetObjectCreater().New(kind); err != nil {
			return apierrors.NewInternalError(err)
		}
	}
	decoder := serializer.NewSerializerWithOptions(
		serializer.DefaultMetaFactory, o.GetObjectCreater(), o.GetObjectTyper(), serializer.SerializerOptions{Strict: true})
	object, found, err := decoder.Decode(answered.Object, nil, object)
	if err == nil && *found != kind {
		err = fmt.Errorf("the kind is %s, not %s", found, kind)
	}
	if err == nil {
		err = sameIdentity(given.GetObject(), object)
	}
	if err != nil {
		klog.ErrorS(err, "The object of the admission step cannot be stored", "resource", given.GetResource().Resource)
		return broken()
	}
	o.GetObjectDefaulter().Default(object)
	return o.GetObjectConvertor().Convert(object, given.GetObject(), nil)
}

func sameIdentity(before, after runtime.Object) error {
	one, err := meta.Accessor(before)
	if err != nil {
		return err
	}
	other, err := meta.Accessor(after)
	if err != nil {
		return err
	}
	for name, pair := range map[string][2]string{
		"name":            {one.GetName(), other.GetName()},
		"namespace":       {one.GetNamespace(), other.GetNamespace()},
		"uid":             {string(one.GetUID()), string(other.GetUID())},
		"resourceVersion": {one.GetResourceVersion(), other.GetResourceVersion()},
	} {
		if pair[0] != pair[1] {
			return fmt.Errorf("metadata.%s has changed from %q to %q", name, pair[0], pair[1])
		}
	}
	return nil
}
