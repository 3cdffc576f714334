#include <algorithm>
#include <climits>
#include <iostream>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <vector>
{program}
using namespace std;
static void a_test_failed(const char* condition) {
    printf("\n%s: %s\n", "a test failed", condition);
    fflush(stdout);
    _Exit(0);
}
{tests}
int main() {
    published_tests();
    putchar('\n');
    for (int read; (read = getchar()) != EOF;) putchar(read);
}
