typedef int stub_priority;
