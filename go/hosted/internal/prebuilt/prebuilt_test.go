package prebuilt

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"tenantry.dev/hosted/internal/datastore"
	"tenantry.dev/hosted/internal/settings"
)

var (
	before = metav1.NewTime(time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC))
	now    = metav1.NewTime(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
)

func about(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, UID: "11111111-1111-4111-8111-111111111111", CreationTimestamp: before, Generation: 1,
		Labels:        map[string]string{"a": "b"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "hosted", Operation: "Update", Time: before.DeepCopy()}},
	}
}

// stored returns an object as an API server stores it.
func stored(t *testing.T, name, mediaType string, object runtime.Object, version string) []byte {
	t.Helper()
	kind := strings.TrimPrefix(strings.TrimPrefix(version, "v1"), "/")
	switch object.(type) {
	case *flowcontrolv1.FlowSchema:
		object.GetObjectKind().SetGroupVersionKind(flowcontrolv1.SchemeGroupVersion.WithKind(kind))
	case *apiregistrationv1.APIService:
		object.GetObjectKind().SetGroupVersionKind(apiregistrationv1.SchemeGroupVersion.WithKind(kind))
	default:
		object.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	}
	found, ok := runtime.SerializerInfoForMediaType(codecsOf(name).SupportedMediaTypes(), mediaType)
	if !ok {
		t.Fatal(mediaType)
	}
	value, err := runtime.Encode(found.Serializer, object)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func flowSchema(meta metav1.ObjectMeta, changed metav1.Time) *flowcontrolv1.FlowSchema {
	return &flowcontrolv1.FlowSchema{
		ObjectMeta: meta,
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "exempt"},
			DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: "ByUser"},
		},
		Status: flowcontrolv1.FlowSchemaStatus{
			Conditions: []flowcontrolv1.FlowSchemaCondition{{Type: "Dangling", Status: "False", LastTransitionTime: changed}}},
	}
}

func service(meta metav1.ObjectMeta, changed metav1.Time) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: meta, Spec: apiregistrationv1.APIServiceSpec{Group: "apps", Version: "v1"},
		Status: apiregistrationv1.APIServiceStatus{Conditions: []apiregistrationv1.APIServiceCondition{
			{Type: "Available", Status: "True", LastTransitionTime: changed}}},
	}
}

func TestObjectsKeepAllButUidAndTimes(t *testing.T) {
	const uid = "22222222-2222-4222-8222-222222222222"
	for _, each := range []struct {
		name, mediaType, kind string
		given                 func(metav1.ObjectMeta, metav1.Time) runtime.Object
	}{
		{"flowschemas/a", runtime.ContentTypeProtobuf, "FlowSchema",
			func(meta metav1.ObjectMeta, at metav1.Time) runtime.Object { return flowSchema(meta, at) }},
		{apiServices + "v1.apps", runtime.ContentTypeJSON, "APIService",
			func(meta metav1.ObjectMeta, at metav1.Time) runtime.Object { return service(meta, at) }},
	} {
		value := stored(t, each.name, each.mediaType, each.given(about("a"), before), each.kind)
		made, err := stripped(each.name, value)
		if err != nil {
			t.Fatal(each.name, err)
		}
		if bytes.Contains(made, []byte("11111111")) || bytes.Contains(made, []byte("2020")) {
			t.Errorf("%s keeps its identity: %q", each.name, made)
		}
		found, err := identified(each.name, made, uid, now.Time)
		if err != nil {
			t.Fatal(each.name, err)
		}
		meta := about("a")
		meta.UID, meta.CreationTimestamp, meta.ManagedFields[0].Time = uid, now, now.DeepCopy()
		expected := stored(t, each.name, each.mediaType, each.given(meta, now), each.kind)
		if !bytes.Equal(found, expected) {
			object, _, _ := codecsOf(each.name).UniversalDeserializer().Decode(found, nil, nil)
			wanted, _, _ := codecsOf(each.name).UniversalDeserializer().Decode(expected, nil, nil)
			if !equality.Semantic.DeepEqual(object, wanted) {
				t.Errorf("%s is %+v, and must be %+v", each.name, object, wanted)
			}
		}
	}
}

func TestNothingOfOneControlPlaneIsTaken(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: about("a")}
	value := stored(t, "secrets/default/a", runtime.ContentTypeProtobuf, secret, "Secret")
	for _, name := range []string{
		"secrets/default/a", "configmaps/kube-system/a", "leases/kube-system/a", "services/specs/default/kubernetes",
		"ranges/serviceips", "masterleases/192.0.2.1", "servicecidrs/kubernetes", "clusterroles",
	} {
		if isKept(name) {
			t.Errorf("%s is taken", name)
		}
		if _, err := identified(name, value, "uid", now.Time); err == nil {
			t.Errorf("%s is used", name)
		}
	}
	owned := &corev1.ServiceAccount{ObjectMeta: about("a")}
	owned.OwnerReferences = []metav1.OwnerReference{{Name: "b", UID: "c"}}
	const name = "serviceaccounts/default/a"
	if _, err := stripped(name, stored(t, name, runtime.ContentTypeProtobuf, owned, "ServiceAccount")); err == nil {
		t.Error("an object with an owner is taken")
	}
	whole := stored(t, name, runtime.ContentTypeProtobuf, &corev1.ServiceAccount{ObjectMeta: about("a")}, "ServiceAccount")
	if _, err := identified(name, whole, "uid", now.Time); err == nil {
		t.Error("an object with a uid is used")
	}
}

// prebuilt returns the path of a file with one ServiceAccount.
func prebuilt(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	const name = "serviceaccounts/default/default"
	value, err := stripped(name,
		stored(t, name, runtime.ContentTypeProtobuf, &corev1.ServiceAccount{ObjectMeta: about("default")}, "ServiceAccount"))
	if err != nil {
		t.Fatal(err)
	}
	given := settings.Datastore{File: filepath.Join(folder, "made.db"), MaxBytes: largestFile}
	err = datastore.Build(t.Context(), given, func(client *clientv3.Client, prefix string) error {
		return put(t.Context(), client, prefix, map[string][]byte{name: value})
	})
	if err != nil {
		t.Fatal(err)
	}
	database, err := os.ReadFile(given.File)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "prebuilt")
	if err := write(file, database); err != nil {
		t.Fatal(err)
	}
	return file
}

// begun starts a database in a folder from a file, and returns the uid of its ServiceAccount; "" if it has none.
func begun(t *testing.T, folder, file string) string {
	t.Helper()
	given := settings.Datastore{File: filepath.Join(folder, "state.db"), MaxBytes: largestFile, Prebuilt: file}
	Begin(t.Context(), given)
	left, err := filepath.Glob(given.File + ".first*")
	if err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	if _, err := os.Stat(given.File); errors.Is(err, os.ErrNotExist) {
		return ""
	}
	store, err := datastore.Open(t.Context(), given, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	answer, err := store.Client().Get(t.Context(), "/registry/serviceaccounts/default/default")
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Kvs) == 0 {
		return ""
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(answer.Kvs[0].Value, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	account := object.(*corev1.ServiceAccount)
	if since := time.Since(account.CreationTimestamp.Time); since < 0 || since > time.Minute {
		t.Errorf("it was created at %s", account.CreationTimestamp)
	}
	return string(account.UID)
}

func TestEachDatabaseHasUidsOfItsOwn(t *testing.T) {
	file, folder := prebuilt(t), t.TempDir()
	first, other := begun(t, folder, file), begun(t, t.TempDir(), file)
	if len(first) != 36 || len(other) != 36 || first == other {
		t.Errorf("the uids are %q and %q", first, other)
	}
	if again := begun(t, folder, file); again != first {
		t.Errorf("a database that is there got the uid %q", again)
	}
}

func TestACopyThatWasInterruptedIsMadeAnew(t *testing.T) {
	file, folder := prebuilt(t), t.TempDir()
	for _, name := range []string{"state.db.first", "state.db.first-journal", "state.db.first-wal", "state.db-wal"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("cut short"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if begun(t, folder, file) == "" {
		t.Error("the database does not begin with the file")
	}
}

func TestAFileThatIsDamagedOrOfAnotherProgramIsNotUsed(t *testing.T) {
	whole, err := os.ReadFile(prebuilt(t))
	if err != nil {
		t.Fatal(err)
	}
	line := bytes.IndexByte(whole, '\n')
	changed := func(at int) []byte {
		content := bytes.Clone(whole)
		content[at] ^= 1
		return content
	}
	own, err := program()
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"empty": nil, "cut in the header": whole[:line], "cut": whole[:len(whole)-1], "longer": append(bytes.Clone(whole), 0),
		"no JSON": changed(0), "another byte": changed(line + 5000), "another last byte": changed(len(whole) - 1),
		"another program": bytes.Replace(whole, []byte(own), []byte(strings.Repeat("0", len(own))), 1),
		"another format":  bytes.Replace(whole, []byte(`"format":1`), []byte(`"format":2`), 1),
	} {
		file := filepath.Join(t.TempDir(), "prebuilt")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := read(file); err == nil {
			t.Errorf("%s: it is read", name)
		}
		if uid := begun(t, t.TempDir(), file); uid != "" {
			t.Errorf("%s: it is used", name)
		}
	}
	if uid := begun(t, t.TempDir(), filepath.Join(t.TempDir(), "none")); uid != "" {
		t.Error("a file that is missing is used")
	}
}
