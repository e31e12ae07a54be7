package prebuilt

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
)

const apiServices = "apiregistration.k8s.io/apiservices/"

// kept begins the keys of the objects that are the same in all control planes, but for their uids and times. No kind may
// be added whose objects name a control plane: no Secrets and ConfigMaps (keys, authorities), no Leases and addresses
// (of processes), no Services and ranges of addresses (settings).
var kept = []string{
	apiServices,
	"clusterrolebindings/",
	"clusterroles/",
	"flowschemas/",
	"namespaces/",
	"priorityclasses/",
	"prioritylevelconfigurations/",
	"rolebindings/",
	"roles/",
	"serviceaccounts/",
}

// isKept returns whether a key, without the prefix of its datastore, is of such an object.
func isKept(name string) bool {
	for _, each := range kept {
		if strings.HasPrefix(name, each) {
			return true
		}
	}
	return false
}

// noTime stands for all times in a file. JSON has no field for the zero time, so that it could not be set later.
var noTime = metav1.Unix(1, 0)

// stripped returns an object without uid and times.
func stripped(name string, value []byte) ([]byte, error) {
	return changed(name, value, func(of metav1.Object, set func(metav1.Time)) error {
		if len(of.GetOwnerReferences()) != 0 || of.GetDeletionTimestamp() != nil {
			return errors.New("an object that belongs to another one, or is being deleted, is not the same everywhere")
		}
		of.SetUID("")
		set(noTime)
		return nil
	})
}

// identified returns an object of a file with a uid, as of now.
func identified(name string, value []byte, uid types.UID, now time.Time) ([]byte, error) {
	if !isKept(name) {
		return nil, errors.New("it is of a kind that belongs to one control plane")
	}
	return changed(name, value, func(of metav1.Object, set func(metav1.Time)) error {
		if of.GetUID() != "" {
			return errors.New("it has a uid")
		}
		of.SetUID(uid)
		set(metav1.NewTime(now).Rfc3339Copy())
		return nil
	})
}

// changed decodes an object, and encodes it as it was stored: in the same version, as JSON or protobuf.
//
// Args: change gets the object, and what sets all its times.
func changed(name string, value []byte, change func(metav1.Object, func(metav1.Time)) error) ([]byte, error) {
	codecs := codecsOf(name)
	object, version, err := codecs.UniversalDeserializer().Decode(value, nil, nil)
	if err != nil {
		return nil, err
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	if err := change(accessor, func(time metav1.Time) { setTimes(reflect.ValueOf(object), time) }); err != nil {
		return nil, err
	}
	mediaType := runtime.ContentTypeJSON
	if bytes.HasPrefix(value, []byte("k8s\x00")) {
		mediaType = runtime.ContentTypeProtobuf
	}
	found, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		return nil, fmt.Errorf("it cannot be written as %s", mediaType)
	}
	object.GetObjectKind().SetGroupVersionKind(*version)
	return runtime.Encode(found.Serializer, object)
}

func codecsOf(name string) serializer.CodecFactory {
	if strings.HasPrefix(name, apiServices) {
		return aggregatorscheme.Codecs
	}
	return scheme.Codecs
}

var timeType = reflect.TypeFor[metav1.Time]()

// setTimes sets all times in an object: when it was created, and when parts and conditions of it were changed. Each of
// them is there always, or a pointer, which is left nil.
func setTimes(in reflect.Value, to metav1.Time) {
	switch in.Kind() {
	case reflect.Pointer:
		if !in.IsNil() {
			setTimes(in.Elem(), to)
		}
	case reflect.Slice:
		for index := range in.Len() {
			setTimes(in.Index(index), to)
		}
	case reflect.Struct:
		if in.Type() == timeType {
			in.Set(reflect.ValueOf(to))
			return
		}
		for index := range in.NumField() {
			if in.Type().Field(index).IsExported() {
				setTimes(in.Field(index), to)
			}
		}
	}
}
