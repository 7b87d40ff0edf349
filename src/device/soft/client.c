typedef int stub_client;
