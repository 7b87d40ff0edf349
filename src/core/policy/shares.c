typedef int stub_shares;
