package plane

import (
	"context"
	"fmt"
	"time"
	_ "unsafe" // go:linkname

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	schedulingapiv1 "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// An API server is ready when it has brought the default roles and priority classes to what they should be. Kubernetes
// waits for a second before it looks at them for the first time, at each start. The hook of this file does the same as
// those of Kubernetes, which it replaces, without this wait.
const (
	defaultsHook     = "start-hosted-defaults"
	defaultsInterval = 100 * time.Millisecond
	// As Kubernetes has it. The process ends then.
	defaultsPatience = 30 * time.Second
)

// The signature is part of the contract with k8s.io/kubernetes; a start would fail otherwise.
//
//go:linkname ensureRBACPolicy k8s.io/kubernetes/pkg/registry/rbac/rest.ensureRBACPolicy
func ensureRBACPolicy(policy *rbacrest.PolicyData, client kubernetes.Interface) (bool, error)

// replaceDefaults has a server that is made of the configuration leave the default objects to addDefaults.
func replaceDefaults(config *genericapiserver.Config) {
	config.DisabledPostStartHooks.Insert(rbacrest.PostStartHookName, schedulingrest.PostStartHookName)
}

func addDefaults(server *genericapiserver.GenericAPIServer) error {
	return server.AddPostStartHook(defaultsHook, func(hook genericapiserver.PostStartHookContext) error {
		client, err := kubernetes.NewForConfig(hook.LoopbackClientConfig)
		if err != nil {
			return err
		}
		policy := &rbacrest.PolicyData{
			ClusterRoles:               append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...),
			ClusterRoleBindings:        append(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()...),
			Roles:                      bootstrappolicy.NamespaceRoles(),
			RoleBindings:               bootstrappolicy.NamespaceRoleBindings(),
			ClusterRolesToAggregate:    bootstrappolicy.ClusterRolesToAggregate(),
			ClusterRoleBindingsToSplit: bootstrappolicy.ClusterRoleBindingsToSplit(),
		}
		ensure := func(ctx context.Context) (bool, error) {
			isDone, err := ensureRBACPolicy(policy, client)
			return isDone && ensurePriorityClasses(ctx, client), err
		}
		if err := wait.PollUntilContextTimeout(hook, defaultsInterval, defaultsPatience, true, ensure); err != nil {
			return fmt.Errorf("the default roles and priority classes cannot be brought: %w", err)
		}
		return nil
	})
}

// ensurePriorityClasses returns whether all are there.
func ensurePriorityClasses(ctx context.Context, client kubernetes.Interface) bool {
	classes := client.SchedulingV1().PriorityClasses()
	for _, class := range schedulingapiv1.SystemPriorityClasses() {
		_, err := classes.Get(ctx, class.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = classes.Create(ctx, class, metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			klog.InfoS("A default priority class cannot be brought yet", "name", class.Name, "cause", err)
			return false
		}
	}
	return true
}
