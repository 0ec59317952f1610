########## MACROS ###########################################################################
#############################################################################################

# Requires CMake > 3.15
if(${CMAKE_VERSION} VERSION_LESS "3.15")
    message(FATAL_ERROR "The 'CMakeDeps' generator only works with CMake >= 3.15")
endif()

if(runnel_FIND_QUIETLY)
    set(runnel_MESSAGE_MODE VERBOSE)
else()
    set(runnel_MESSAGE_MODE STATUS)
endif()

include(${CMAKE_CURRENT_LIST_DIR}/cmakedeps_macros.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/runnelTargets.cmake)
include(CMakeFindDependencyMacro)

check_build_type_defined()

foreach(_DEPENDENCY ${runnel_FIND_DEPENDENCY_NAMES} )
    # Check that we have not already called a find_package with the transitive dependency
    if(NOT ${_DEPENDENCY}_FOUND)
        find_dependency(${_DEPENDENCY} REQUIRED ${${_DEPENDENCY}_FIND_MODE})
    endif()
endforeach()

set(runnel_VERSION_STRING "0.1.0")
set(runnel_INCLUDE_DIRS ${runnel_INCLUDE_DIRS_RELEASE} )
set(runnel_INCLUDE_DIR ${runnel_INCLUDE_DIRS_RELEASE} )
set(runnel_LIBRARIES ${runnel_LIBRARIES_RELEASE} )
set(runnel_DEFINITIONS ${runnel_DEFINITIONS_RELEASE} )


# Definition of extra CMake variables from cmake_extra_variables


# Only the last installed configuration BUILD_MODULES are included to avoid the collision
foreach(_BUILD_MODULE ${runnel_BUILD_MODULES_PATHS_RELEASE} )
    message(${runnel_MESSAGE_MODE} "Conan: Including build module from '${_BUILD_MODULE}'")
    include(${_BUILD_MODULE})
endforeach()


