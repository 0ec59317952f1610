# Avoid multiple calls to find_package to append duplicated properties to the targets
include_guard()########### VARIABLES #######################################################################
#############################################################################################
set(runnel_FRAMEWORKS_FOUND_RELEASE "") # Will be filled later
conan_find_apple_frameworks(runnel_FRAMEWORKS_FOUND_RELEASE "${runnel_FRAMEWORKS_RELEASE}" "${runnel_FRAMEWORK_DIRS_RELEASE}")

set(runnel_LIBRARIES_TARGETS "") # Will be filled later


######## Create an interface target to contain all the dependencies (frameworks, system and conan deps)
if(NOT TARGET runnel_DEPS_TARGET)
    add_library(runnel_DEPS_TARGET INTERFACE IMPORTED)
endif()

set_property(TARGET runnel_DEPS_TARGET
             APPEND PROPERTY INTERFACE_LINK_LIBRARIES
             $<$<CONFIG:Release>:${runnel_FRAMEWORKS_FOUND_RELEASE}>
             $<$<CONFIG:Release>:${runnel_SYSTEM_LIBS_RELEASE}>
             $<$<CONFIG:Release>:>)

####### Find the libraries declared in cpp_info.libs, create an IMPORTED target for each one and link the
####### runnel_DEPS_TARGET to all of them
conan_package_library_targets("${runnel_LIBS_RELEASE}"    # libraries
                              "${runnel_LIB_DIRS_RELEASE}" # package_libdir
                              "${runnel_BIN_DIRS_RELEASE}" # package_bindir
                              "${runnel_LIBRARY_TYPE_RELEASE}"
                              "${runnel_IS_HOST_WINDOWS_RELEASE}"
                              runnel_DEPS_TARGET
                              runnel_LIBRARIES_TARGETS  # out_libraries_targets
                              "_RELEASE"
                              "runnel"    # package_name
                              "${runnel_NO_SONAME_MODE_RELEASE}")  # soname

# FIXME: What is the result of this for multi-config? All configs adding themselves to path?
set(CMAKE_MODULE_PATH ${runnel_BUILD_DIRS_RELEASE} ${CMAKE_MODULE_PATH})

########## GLOBAL TARGET PROPERTIES Release ########################################
    set_property(TARGET runnel::runnel
                 APPEND PROPERTY INTERFACE_LINK_LIBRARIES
                 $<$<CONFIG:Release>:${runnel_OBJECTS_RELEASE}>
                 $<$<CONFIG:Release>:${runnel_LIBRARIES_TARGETS}>
                 )

    if("${runnel_LIBS_RELEASE}" STREQUAL "")
        # If the package is not declaring any "cpp_info.libs" the package deps, system libs,
        # frameworks etc are not linked to the imported targets and we need to do it to the
        # global target
        set_property(TARGET runnel::runnel
                     APPEND PROPERTY INTERFACE_LINK_LIBRARIES
                     runnel_DEPS_TARGET)
    endif()

    set_property(TARGET runnel::runnel
                 APPEND PROPERTY INTERFACE_LINK_OPTIONS
                 $<$<CONFIG:Release>:${runnel_LINKER_FLAGS_RELEASE}>)
    set_property(TARGET runnel::runnel
                 APPEND PROPERTY INTERFACE_INCLUDE_DIRECTORIES
                 $<$<CONFIG:Release>:${runnel_INCLUDE_DIRS_RELEASE}>)
    # Necessary to find LINK shared libraries in Linux
    set_property(TARGET runnel::runnel
                 APPEND PROPERTY INTERFACE_LINK_DIRECTORIES
                 $<$<CONFIG:Release>:${runnel_LIB_DIRS_RELEASE}>)
    set_property(TARGET runnel::runnel
                 APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS
                 $<$<CONFIG:Release>:${runnel_COMPILE_DEFINITIONS_RELEASE}>)
    set_property(TARGET runnel::runnel
                 APPEND PROPERTY INTERFACE_COMPILE_OPTIONS
                 $<$<CONFIG:Release>:${runnel_COMPILE_OPTIONS_RELEASE}>)

########## For the modules (FindXXX)
set(runnel_LIBRARIES_RELEASE runnel::runnel)
