typedef int stub_server;
