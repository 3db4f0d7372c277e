// SPDX-License-Identifier: MIT
//
// As src/pch/std.h, for tests.
#include "../../src/pch/std.h"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>
