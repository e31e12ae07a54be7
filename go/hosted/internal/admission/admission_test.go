package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	webhooks "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"tenantry.dev/hosted/internal/settings"
)

var services = settings.Rule{Resource: "services", Operations: []string{"CREATE", "UPDATE"}}

// serving answers on a socket, and returns its path.
func serving(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return socket
}

// answering returns a plugin whose process answers with a text, and the last question that it got.
func answering(t *testing.T, text string) (*plugin, *map[string]any) {
	asked := &map[string]any{}
	socket := serving(t, func(writer http.ResponseWriter, request *http.Request) {
		if err := json.NewDecoder(request.Body).Decode(asked); err != nil {
			t.Error(err)
		}
		fmt.Fprint(writer, text)
	})
	return newPlugin(settings.Admission{Socket: socket, Rules: []settings.Rule{services}}), asked
}

func service() *core.Service {
	return &core.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"},
		Spec:       core.ServiceSpec{Type: core.ServiceTypeClusterIP, Ports: []core.ServicePort{{Port: 80}}},
	}
}

func attributes(object, old runtime.Object, operation admission.Operation, sub string, dry bool) admission.Attributes {
	return admission.NewAttributesRecord(object, old, schema.GroupVersionKind{Version: "v1", Kind: "Service"}, "shop", "web",
		schema.GroupVersionResource{Version: "v1", Resource: "services"}, sub, operation, nil, dry,
		&user.DefaultInfo{Name: "ann"})
}

func admit(ctx context.Context, p *plugin, object *core.Service) error {
	return p.Admit(ctx, attributes(object, nil, admission.Create, "", false), interfaces())
}

func interfaces() admission.ObjectInterfaces {
	return admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
}

const stored = `{"object": {"kind": "Service", "apiVersion": "v1",
	"metadata": {"name": "web", "namespace": "shop", "labels": {"a": "b"}},
	"spec": {"type": "ClusterIP", "clusterIP": "10.96.0.7", "ports": [{"port": 80}]}}}`

func TestTheAnswerIsStoredWithItsDefaults(t *testing.T) {
	p, asked := answering(t, stored)
	object := service()
	err := p.Admit(t.Context(), attributes(object, service(), admission.Update, "", true), interfaces())
	if err != nil {
		t.Fatal(err)
	}
	if object.Spec.ClusterIP != "10.96.0.7" || object.Labels["a"] != "b" || object.Spec.Ports[0].Protocol != "TCP" {
		t.Errorf("stored: %+v", object)
	}
	for name, expected := range map[string]any{
		"operation": "UPDATE", "group": "", "version": "v1", "resource": "services",
		"namespace": "shop", "name": "web", "user": "ann", "dryRun": true,
	} {
		if (*asked)[name] != expected {
			t.Errorf("%s is %v", name, (*asked)[name])
		}
	}
	for _, name := range []string{"object", "oldObject"} {
		sent := (*asked)[name].(map[string]any)
		if sent["kind"] != "Service" || sent["apiVersion"] != "v1" {
			t.Errorf("%s: %v", name, sent)
		}
	}
}

func TestTheProcessGetsTheNameThatIsGenerated(t *testing.T) {
	var name string
	socket := serving(t, func(writer http.ResponseWriter, request *http.Request) {
		asked := struct {
			Name   string
			Object json.RawMessage
		}{}
		if err := json.NewDecoder(request.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		name = asked.Name
		fmt.Fprintf(writer, `{"object": %s}`, asked.Object)
	})
	p := newPlugin(settings.Admission{Socket: socket, Rules: []settings.Rule{services}})
	object := service()
	object.Name, object.GenerateName = "", "web-"
	if err := admit(t.Context(), p, object); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(name, "web-") || len(name) <= len("web-") || object.Name != name {
		t.Errorf("%q was asked for, and %q is stored", name, object.Name)
	}
}

func TestARefusalReachesTheClientAsItIs(t *testing.T) {
	p, _ := answering(t, `{"status": {"code": 403, "reason": "Forbidden", "message": "no NodePorts here"}}`)
	err := admit(t.Context(), p, service())
	if !apierrors.IsForbidden(err) || err.Error() != "no NodePorts here" {
		t.Errorf("%#v", err)
	}
}

func TestAnAnswerThatIsNoneRefuses(t *testing.T) {
	for _, text := range []string{
		"", "{}", "[]", `{"object": 1}`,
		`{"status": {}}`, `{"status": {"code": 200}}`,
		strings.Replace(stored, `"web"`, `"other"`, 1),
		strings.Replace(stored, `"shop"`, `"other"`, 1),
		strings.Replace(stored, `"kind": "Service"`, `"kind": "Pod"`, 1),
		strings.Replace(stored, `"type"`, `"typo"`, 1),
		strings.Replace(stored, `"labels"`, `"uid": "u", "labels"`, 1),
		strings.Replace(stored, `"b"`, `"`+strings.Repeat("b", largestBody)+`"`, 1),
	} {
		p, _ := answering(t, text)
		object := service()
		if err := admit(t.Context(), p, object); !apierrors.IsInternalError(err) {
			t.Errorf("%.200s: %v", text, err)
		}
		if len(object.Labels) != 0 {
			t.Errorf("%.200s: the object has changed", text)
		}
	}
}

func TestOtherHTTPStatusesAndRedirectsRefuse(t *testing.T) {
	for _, code := range []int{201, 302, 404, 500} {
		socket := serving(t, func(writer http.ResponseWriter, _ *http.Request) {
			writer.Header().Set("Location", "http://127.0.0.1/")
			writer.WriteHeader(code)
			fmt.Fprint(writer, stored)
		})
		p := newPlugin(settings.Admission{Socket: socket, Rules: []settings.Rule{services}})
		if err := admit(t.Context(), p, service()); !apierrors.IsInternalError(err) {
			t.Errorf("%d: %v", code, err)
		}
	}
}

func checkUnavailable(t *testing.T, err error) {
	t.Helper()
	seconds, ok := apierrors.SuggestsClientDelay(err)
	if !apierrors.IsServiceUnavailable(err) || !ok || seconds != retrySeconds {
		t.Errorf("%#v", err)
	}
	if !strings.Contains(err.Error(), "try again") {
		t.Error(err)
	}
}

func TestWithoutTheProcessTheRequestIsRefused(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	p := newPlugin(settings.Admission{Socket: socket, Rules: []settings.Rule{services}})
	p.caller.timeout = 50 * time.Millisecond
	err := admit(t.Context(), p, service())
	checkUnavailable(t, err)
	if strings.Contains(err.Error(), socket) {
		t.Error(err)
	}
}

func TestARequestWaitsForTheProcess(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	p := newPlugin(settings.Admission{Socket: socket, Rules: []settings.Rule{services}})
	refused := make(chan error)
	go func() { refused <- admit(t.Context(), p, service()) }()
	// The request has its turn, so that it is about to connect.
	for len(p.caller.slots) == 0 {
		goruntime.Gosched()
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(writer, `{"status": {"code": 403, "reason": "Forbidden", "message": "no"}}`)
	})}
	go server.Serve(listener)
	defer server.Close()
	if err := <-refused; !apierrors.IsForbidden(err) {
		t.Error(err)
	}
}

func TestASilentProcessIsNotWaitedForWithoutEnd(t *testing.T) {
	var asked atomic.Bool
	ended := make(chan struct{}, 1)
	socket := serving(t, func(_ http.ResponseWriter, request *http.Request) {
		asked.Store(true)
		// The end of the request shows only after its body.
		json.NewDecoder(request.Body).Decode(&map[string]any{})
		<-request.Context().Done()
		select {
		case ended <- struct{}{}:
		default:
		}
	})
	p := newPlugin(settings.Admission{Socket: socket, Rules: []settings.Rule{services}})
	p.caller.timeout = 50 * time.Millisecond
	// On a busy machine, a call may end before it is sent.
	for !asked.Load() {
		checkUnavailable(t, admit(t.Context(), p, service()))
	}
	<-ended
}

func TestOnlySomeCallsGoOutAtOneTime(t *testing.T) {
	var calls atomic.Int32
	full, goOn := make(chan struct{}), make(chan struct{})
	socket := serving(t, func(writer http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == mostCalls {
			close(full)
		}
		<-goOn
		fmt.Fprint(writer, stored)
	})
	p := newPlugin(settings.Admission{Socket: socket, Rules: []settings.Rule{services}})
	results := make(chan error, mostCalls)
	for range mostCalls {
		go func() { results <- admit(context.Background(), p, service()) }()
	}
	<-full
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	checkUnavailable(t, admit(ctx, p, service()))
	close(goOn)
	for range mostCalls {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if calls.Load() != mostCalls {
		t.Errorf("%d calls", calls.Load())
	}
}

func TestALargeObjectIsRefusedBeforeTheCall(t *testing.T) {
	p := newPlugin(settings.Admission{Socket: "none", Rules: []settings.Rule{services}})
	object := service()
	object.Annotations = map[string]string{"a": strings.Repeat("x", largestBody)}
	if err := admit(t.Context(), p, object); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Error(err)
	}
}

func TestOtherRequestsPassWithoutTheProcess(t *testing.T) {
	p := newPlugin(settings.Admission{Socket: "none", Rules: []settings.Rule{
		{Resource: "services", Operations: []string{"CREATE"}},
		{Group: "apps", Resource: "deployments", Operations: []string{"UPDATE"}},
	}})
	for _, given := range []admission.Attributes{
		attributes(service(), nil, admission.Create, "status", false),
		attributes(service(), service(), admission.Update, "", false),
		admission.NewAttributesRecord(service(), nil, schema.GroupVersionKind{}, "shop", "web",
			schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "services"}, "",
			admission.Create, nil, false, nil),
	} {
		if err := p.Admit(t.Context(), given, interfaces()); err != nil {
			t.Errorf("%s %s %q: %v", given.GetOperation(), given.GetResource(), given.GetSubresource(), err)
		}
	}
	if p.Handles(admission.Delete) || p.Handles(admission.Connect) || !p.Handles(admission.Update) {
		t.Error("operations")
	}
}

func TestOnlyTheTokenOfTheServerExempts(t *testing.T) {
	config := &genericapiserver.Config{LoopbackClientConfig: &rest.Config{BearerToken: "secret"}}
	config.BuildHandlerChainFunc = func(handler http.Handler, _ *genericapiserver.Config) http.Handler { return handler }
	ExemptOwn(config)
	p := newPlugin(settings.Admission{Socket: filepath.Join(t.TempDir(), "s"), Rules: []settings.Rule{services}})
	var err error
	chain := config.BuildHandlerChainFunc(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		given := admission.NewAttributesRecord(service(), nil, schema.GroupVersionKind{Version: "v1", Kind: "Service"}, "shop",
			"web", schema.GroupVersionResource{Version: "v1", Resource: "services"}, "", admission.Create, nil, false,
			&user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}})
		err = p.Admit(request.Context(), given, interfaces())
	}), config)
	for header, exempt := range map[string]bool{"Bearer secret": true, "Bearer other": false, "": false} {
		request := httptest.NewRequest(http.MethodPost, "/", nil)
		request.Header.Set("Authorization", header)
		chain.ServeHTTP(httptest.NewRecorder(), request)
		if (err == nil) != exempt {
			t.Errorf("%q: %v", header, err)
		}
	}
}

// An upgrade of Kubernetes that moves the webhooks must not move the step behind them.
func TestTheStepPrecedesWhatUsersConfigure(t *testing.T) {
	shared := slices.Clone(kubeoptions.AllOrderedPlugins)
	found := kubeoptions.NewAdmissionOptions().GenericAdmission
	if err := Install(found, settings.Admission{Socket: "s", Rules: []settings.Rule{services}}); err != nil {
		t.Fatal(err)
	}
	order := found.RecommendedPluginOrder
	place := slices.Index(order, PluginName)
	if place < 0 || place > slices.Index(order, mutating.PluginName) || place > slices.Index(order, webhooks.PluginName) {
		t.Error(order)
	}
	if errs := found.Validate(); len(errs) != 0 {
		t.Error(errs)
	}
	if !slices.Equal(shared, kubeoptions.AllOrderedPlugins) {
		t.Error("the order of the package has changed")
	}
	found.RecommendedPluginOrder = nil
	if err := Install(found, settings.Admission{}); err == nil {
		t.Error("a step without a place was installed")
	}
}

// recorder has the warnings of a request.
type recorder struct{ texts []string }

func (r *recorder) AddWarning(_, text string) { r.texts = append(r.texts, text) }

func TestAdviceReachesTheClientAndRefusesNothing(t *testing.T) {
	for answered, expected := range map[string][]string{
		`{"warnings": ["the host refuses it", "its image, too"]}`: {"the host refuses it", "its image, too"},
		`{}`: nil,
		`{"status": {"code": 403, "reason": "Forbidden", "message": "no"}}`: nil,
		`no JSON`: nil,
	} {
		_, asked := answering(t, "")
		socket := serving(t, func(writer http.ResponseWriter, request *http.Request) {
			json.NewDecoder(request.Body).Decode(asked)
			fmt.Fprint(writer, answered)
		})
		p := newPlugin(settings.Admission{Socket: socket, Advice: []settings.Rule{services}})
		told := &recorder{}
		object := service()
		if err := admit(warning.WithWarningRecorder(t.Context(), told), p, object); err != nil {
			t.Errorf("%s: %v", answered, err)
		}
		if !slices.Equal(told.texts, expected) {
			t.Errorf("%s: told %q", answered, told.texts)
		}
		if object.Spec.ClusterIP != "" || (*asked)["name"] != "web" {
			t.Errorf("%s: %+v was asked about, and is stored as %+v", answered, *asked, object)
		}
	}
}

func TestProgramsOfKubernetesGetNoAdvice(t *testing.T) {
	p := newPlugin(settings.Admission{Advice: []settings.Rule{services}, Socket: serving(t,
		func(writer http.ResponseWriter, _ *http.Request) {
			t.Error("the process was asked")
			fmt.Fprint(writer, `{"warnings": ["no"]}`)
		})})
	given := admission.NewAttributesRecord(service(), nil, schema.GroupVersionKind{Version: "v1", Kind: "Service"},
		"shop", "web", schema.GroupVersionResource{Version: "v1", Resource: "services"}, "", admission.Create, nil, false,
		&user.DefaultInfo{Name: "system:serviceaccount:kube-system:replicaset-controller"})
	told := &recorder{}
	if err := p.Admit(warning.WithWarningRecorder(t.Context(), told), given, interfaces()); err != nil {
		t.Fatal(err)
	}
	if len(told.texts) != 0 {
		t.Errorf("told %q", told.texts)
	}
}

func TestAdviceThatIsLateOrTooMuchIsNotWaitedFor(t *testing.T) {
	hold, begun := make(chan struct{}), make(chan struct{}, mostAdvice)
	socket := serving(t, func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-hold
	})
	t.Cleanup(func() { close(hold) })
	p := newPlugin(settings.Admission{Socket: socket, Advice: []settings.Rule{services}})
	late := make(chan error, mostAdvice)
	for range mostAdvice {
		go func() { late <- admit(t.Context(), p, service()) }()
	}
	for range mostAdvice {
		<-begun
	}
	// The slots are taken, and it passes at once: with a slot, it would be asked about.
	if err := admit(t.Context(), p, service()); err != nil || len(begun) != 0 {
		t.Errorf("without a slot: %v", err)
	}
	for range mostAdvice {
		if err := <-late; err != nil {
			t.Errorf("without an answer: %v", err)
		}
	}
}
