# consumer: a project of somebody else's that finds the installed package. Copied as CMakeLists.txt beside main.c.
cmake_minimum_required(VERSION 3.16)
project(consumer LANGUAGES C)
find_package(argand 0.1 REQUIRED)
add_executable(consumer main.c)
target_link_libraries(consumer PRIVATE argand::argand)
